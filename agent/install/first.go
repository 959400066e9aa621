// SPDX-License-Identifier: Apache-2.0

package install

import (
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
)

// before returns the network configuration that the runtime uses instead of name, since its name comes
// first. It is empty if there is none.
func before(dir, name string) (string, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"}) // as containerd and CRI-O
	first := name
	for _, file := range files {
		first = min(first, filepath.Base(file))
	}
	if first == name {
		return "", err
	}
	return first, nil
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
