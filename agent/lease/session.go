// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// BootID returns the kernel's boot ID, which changes at every boot (random(4)).
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ID returns the session of a node in one boot. A machine that was re-imaged under the same name
// registers with another UID, and a machine that rebooted has another boot ID: both machines then
// have a new session, and their old leases have the old one (R8).
func ID(nodeUID types.UID, bootID string) string {
	return string(nodeUID) + "/" + bootID
}

// MaySpeakUnfenced reports whether the last holder of a lease may send after a claim: it has no
// guard, and no boot of this node, whose session is now, has ended it. The pod of a hold has no session.
func MaySpeakUnfenced(l *v1alpha1.IPLease, node, now string) bool {
	of, then := l.Spec.NodeName, l.Spec.Session
	if p := l.Spec.Previous; p != nil {
		of, then = p.Node, p.Session
	}
	return l.LastUnguarded() && (of != node || then == "" || SameBoot(then, now))
}

// SameBoot reports whether two sessions of a node are of the same boot, and so of the same pods.
func SameBoot(a, b string) bool { return boot(a) == boot(b) }

// boot returns the boot ID of a session.
func boot(session string) string {
	_, id, _ := strings.Cut(session, "/")
	return id
}
