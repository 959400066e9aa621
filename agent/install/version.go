// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// oldVersion is known to every runtime of the Kubernetes versions that Fenceline supports.
	oldVersion = "1.0.0"
	// newVersion has the verbs GC and STATUS.
	newVersion = "1.1.0"
)

// VersionFor returns the CNI version to write for a container runtime, given in the form of a
// Node's status.nodeInfo.containerRuntimeVersion, such as containerd://1.7.27. A runtime refuses
// every pod if it does not know the version. With the older version it only lacks STATUS and GC. So
// an unknown runtime gets the older version.
func VersionFor(runtime string) string {
	name, text, _ := strings.Cut(runtime, "://")
	// The first releases of each runtime whose CNI library knows the newer version.
	first, known := map[string]*version.Version{"containerd": version.MajorMinor(2, 0), "cri-o": version.MajorMinor(1, 31)}[name]
	if is, err := version.ParseGeneric(text); err == nil && known && is.AtLeast(first) {
		return newVersion
	}
	return oldVersion
}

// withVersion returns a network configuration with the version for a runtime. written is empty if
// the configuration names a version itself, or is no JSON object: validate refuses the latter.
func withVersion(template []byte, runtime string) (content []byte, written string) {
	var list map[string]any
	if err := json.Unmarshal(template, &list); err != nil || list["cniVersion"] != nil || len(list) == 0 {
		return template, ""
	}
	written = VersionFor(runtime)
	// The other lines stay as they are, since people compare them with the chart's.
	_, rest, _ := bytes.Cut(template, []byte("{"))
	return append(fmt.Appendf(nil, "{\n  \"cniVersion\": %q,", written), rest...), written
}
