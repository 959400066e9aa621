// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/standalone"
)

// standsAlone reports whether a call of this verb is served without an agent. "ipam.standalone"
// decides if it is set. Otherwise the configuration must have ranges, and the call no namespace of
// a pod: podman names its containers as pods without one (containers/podman
// libpod/network/cni/run.go). GC and STATUS never name a pod, and a runtime may have lost the
// ranges before DEL (k8snetworkplumbingwg/multus-cni issue 1449). These go to the agent if the
// directory of its socket exists.
func (c *call) standsAlone(verb string) bool {
	switch {
	case c.conf.chained():
		return false
	case c.conf.IPAM.Standalone != nil:
		return *c.conf.IPAM.Standalone
	case c.env.pod.Namespace != "" || !c.conf.hasRanges() && verb != "DEL":
		return false
	case c.conf.hasRanges() && c.args.ContainerID != "":
		return true
	}
	_, err := os.Stat(filepath.Dir(c.conf.IPAM.Socket))
	return err != nil
}

// hasRanges reports whether the configuration has ranges of host-local.
func (c *netConf) hasRanges() bool {
	return c.IPAM.Ranges != nil || c.IPAM.Subnet != nil || c.RuntimeConfig.IPRanges != nil
}

func (p plugin) alone(ctx context.Context, verb string, c *call) error {
	now, err := p.now()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return agentapi.Errorf(agentapi.CodeIOFailure, "read the host name, which marks the data files: %w", err)
	}
	s := standalone.Call{
		Attachment: c.attachment(), NetNS: c.args.Netns, Args: c.args.Args, Conf: c.args.StdinData,
		Stderr: p.stderr, Host: host, Boot: now.boot, Now: time.Now, Booted: bootTime(now.up),
	}
	switch verb {
	case "ADD":
		if c.conf.Type == "ovs" {
			return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "ovs-cni asks for an address before Open vSwitch has taken the port, so that a probe hears nobody: use a Linux bridge, or Fenceline with an agent")
		}
		r, err := standalone.Add(ctx, s)
		if err != nil {
			return err
		}
		if err = p.print(r, c.conf.CNIVersion); err != nil {
			_ = standalone.Del(s)
		}
		return err
	case "DEL":
		return standalone.Del(s)
	case "CHECK":
		return standalone.Check(s)
	case "STATUS":
		return standalone.Status(s)
	}
	valid, err := c.conf.validAttachments()
	if err != nil {
		return err
	}
	return standalone.GC(s, valid)
}

// bootTime returns a time that no file of this boot precedes, or the zero value. The clock may have been
// set forward since the first of them was written. So the time of /dev/null counts too, which the kernel
// makes at the boot.
func bootTime(up time.Duration) time.Time {
	made, err := os.Stat(os.DevNull)
	if err != nil {
		return time.Time{}
	}
	booted := time.Now().Add(-up)
	if made.ModTime().Before(booted) {
		return made.ModTime()
	}
	return booted
}
