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
