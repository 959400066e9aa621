// Package session tells which life of which machine this is.
package session

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// bootIDFile changes at every boot (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the kernel's boot ID.
func BootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ID returns the session of a node in one boot. A machine that was re-imaged
// under the same name registers with another UID, and one that rebooted has
// another boot ID: neither is the session that wrote its old leases (R8).
func ID(nodeUID types.UID, bootID string) string {
	return string(nodeUID) + "/" + bootID
}

// Continue returns the session that this life goes on under: the one that the
// node's own journal was written in, if that was in the same boot. A Node
// object that was deleted and registered again has another UID, and its pods
// are the same all the while.
func Continue(now string, journalled []string) string {
	for _, s := range journalled {
		if SameBoot(s, now) {
			return s
		}
	}
	return now
}

// SameBoot tells whether two sessions of a node are of one boot, so that what
// the one has started may still run in the other.
func SameBoot(a, b string) bool { return boot(a) == boot(b) }

// boot is the boot ID of a session.
func boot(session string) string {
	_, id, _ := strings.Cut(session, "/")
	return id
}
