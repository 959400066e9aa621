// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzCall: each part of a configuration and of CNI_ARGS is read, or refused with a CNI error.
func FuzzCall(f *testing.F) {
	for _, text := range []string{
		`{"type":"fenceline"}`, `{"ipam":{"type":"fenceline"}}`, `{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0"}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"interfaces":[{"name":"eth0","sandbox":"/n","mac":"02:00:00:00:00:01"}],"ips":[{"address":"192.0.2.7/24","gateway":"192.0.2.1","interface":0}]}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"interfaces":[null],"ips":[{"address":"192.0.2.7/24","interface":0}]}}`,
		`{"type":"fenceline","cniVersion":"1.0.0","prevResult":{"ips":[null]}}`,
		`{"type":"fenceline","cniVersion":"0.3.1","prevResult":{"interfaces":[null],"ips":[null],"routes":[null]}}`,
		`{"type":"fenceline","cniVersion":"0.4.0","prevResult":{"ips":[{"version":"4","address":"::ffff:192.0.2.7/120"}]}}`,
		`{"ipam":{"type":"fenceline","socket":"/run/a","spool":"/b"},"args":{"cni":{"ips":["192.0.2.7/24","::ffff:192.0.2.7"]}},"runtimeConfig":{"ips":["fe80::1%a"]}}`,
		`{"type":"fenceline","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`, `{"type":"fenceline","cni.dev/attachments":[]}`,
	} {
		f.Add([]byte(text), "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;IP=192.0.2.7,fd00::7")
		f.Add([]byte(text), "IgnoreUnknown")
	}
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		refused := func(err error) bool {
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, err == nil || ok && e.Code != 0, "%s, %q: %T %v", stdin, args, err, err)
			return err != nil
		}
		env, err := parseEnvironment(args)
		if refused(err) || refused(env.requirePod()) {
			env = environment{}
		}
		conf, err := parseNetConf(stdin)
		if refused(err) {
			return
		}
		ips, err := conf.requestedIPs(env)
		refused(err)
		for i, ip := range ips {
			if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() || slices.Contains(ips[:i], ip) {
				t.Errorf("%s, %q: addresses %s", stdin, args, ips)
			}
		}
		if valid, err := conf.validAttachments(); !refused(err) && valid == nil {
			t.Errorf("%s: no list of attachments", stdin)
		}
		previous, err := conf.previous()
		if refused(err) {
			return
		}
		setMAC(previous, "eth0", "02:00:00:00:00:01")
		for _, c := range configured(previous, "eth0") {
			check.That(t, c.Address.IsValid() && !c.Address.Addr().Is4In6() && !c.Gateway.Is4In6(), "%s: address %+v", stdin, c)
		}
	})
}
