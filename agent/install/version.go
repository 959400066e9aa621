// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

const (
	// oldVersion is known to every runtime of the Kubernetes versions that Fenceline supports.
	oldVersion = "1.0.0"
	// newVersion has the verbs GC and STATUS.
	newVersion = "1.1.0"
)

// release is the major and minor number of a release.
type release struct{ major, minor int }

// VersionFor returns the CNI version to write for a container runtime, which is given in the form of
// a Node's status.nodeInfo.containerRuntimeVersion, such as containerd://1.7.27. A runtime that gets
// a version that it does not know refuses every pod. With the older version it only calls neither
// STATUS nor GC. So the older version is the answer for each runtime that is not known.
func VersionFor(runtime string) string {
	name, version, _ := strings.Cut(runtime, "://")
	is, ok := parseRelease(version)
	// The first releases of each runtime whose CNI library knows the newer version.
	switch {
	case ok && name == "containerd" && !is.before(release{2, 0}), ok && name == "cri-o" && !is.before(release{1, 31}):
		return newVersion
	}
	return oldVersion
}

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

// parseRelease reads the first two numbers of a version.
func parseRelease(version string) (release, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return release{}, false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return release{}, false
	}
	minor, err := strconv.Atoi(parts[1])
	return release{major, minor}, err == nil
}

// withVersion returns a network configuration with the version for a runtime. version is empty if
// the configuration names a version itself, or is no JSON object: validate refuses the latter.
func withVersion(template []byte, runtime string) (content []byte, version string) {
	var list map[string]any
	if err := json.Unmarshal(template, &list); err != nil || list["cniVersion"] != nil || len(list) == 0 {
		return template, ""
	}
	version = VersionFor(runtime)
	// The other lines stay as they are, since people compare them with the chart's.
	_, rest, _ := bytes.Cut(template, []byte("{"))
	return append(fmt.Appendf(nil, "{\n  \"cniVersion\": %q,", version), rest...), version
}
