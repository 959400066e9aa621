// SPDX-License-Identifier: Apache-2.0

package install

import (
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
)

// First returns the network configuration that the runtime uses for the first interface of pods. It is
// empty if there is none.
func First(dir string) (string, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"}) // as containerd and CRI-O
	if err != nil || len(files) == 0 {
		return "", err
	}
	return filepath.Base(slices.Min(files)), nil
}

// before returns the network configuration that the runtime uses instead of name, since its name comes
// first. It is empty if there is none.
func before(dir, name string) (string, error) {
	first, err := First(dir)
	if first >= name {
		first = ""
	}
	return first, err
}

// tellFirst reports each configuration that comes before the agent's own. That may be wanted: then
// Fenceline serves the networks that Multus adds.
func (i *Installer) tellFirst(list *kept) {
	other, err := before(i.ConfDir, filepath.Base(list.path))
	if err != nil || other == list.first {
		return // an unreadable directory is reported by the installation
	}
	list.first = other
	if other == "" {
		return
	}
	i.Log.Info("another network configuration comes first by name, so the runtime uses it for the first interface of pods", "file", other, "own", list.path)
	i.tell.event(corev1.EventTypeNormal, "NetworkNotFirst", "%s comes before %s by name, so the container runtime uses it for the first interface of pods; if Fenceline shall be the pod network, set cni.conflist.name of the chart to a name that comes first",
		other, filepath.Base(list.path))
}
