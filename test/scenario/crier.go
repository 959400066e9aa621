// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"sync/atomic"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/network"
)

// cryEvery is the interval of the announcements of a crier.
const cryEvery = network.CryEvery

// crier sends gratuitous ARP from inside a pod until the scenario ends.
type crier struct {
	// sent counts the frames that the kernel accepted, refused the frames that it dropped.
	sent, refused atomic.Int64
}

// cry starts a crier in a pod. It does not depend on the processes of the pod.
func (a *act) cry(pod *cluster.Pod) *crier {
	ns := value(pod.Enter())
	defer ns.Close()
	c := &crier{}
	stop := value(ns.Cry(cluster.PodInterface, addressOf(pod), &c.sent, &c.refused))
	a.after("stop the crier", func(context.Context) { stop() })
	return c
}
