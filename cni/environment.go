// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// environment holds the values of CNI_ARGS that the plugin uses.
type environment struct {
	pod agentapi.Pod
	ips []string
}

// parseEnvironment reads CNI_ARGS, "K=V;K2=V2". It ignores unknown keys, which are for other
// plugins.
func parseEnvironment(args string) (environment, error) {
	var env environment
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return environment{}, badEnvironment.errorf(
				"CNI_ARGS holds %q, which is not KEY=VALUE", pair)
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			env.pod.Namespace = value
		case "K8S_POD_NAME":
			env.pod.Name = value
		case "K8S_POD_UID":
			env.pod.UID = value
		case "IP":
			env.ips = strings.Split(value, ",")
		}
	}
	return env, nil
}

// requirePod returns an error if the call names no pod: a lease needs a holder.
func (e environment) requirePod() error {
	var missing []string
	if e.pod.Namespace == "" {
		missing = append(missing, "K8S_POD_NAMESPACE")
	}
	if e.pod.Name == "" {
		missing = append(missing, "K8S_POD_NAME")
	}
	if missing == nil {
		return nil
	}
	return badEnvironment.errorf(
		"CNI_ARGS lacks %s: the runtime of a Kubernetes node sets it; by hand, export CNI_ARGS='K8S_POD_NAMESPACE=…;K8S_POD_NAME=…;K8S_POD_UID=…'",
		strings.Join(missing, " and "))
}
