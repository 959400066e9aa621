// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// door is the host link of a pod, its second way out. Its other end is the pod's node.
type door struct {
	*act
	pod        *cluster.Pod
	inside, at place // the pod and its node
	management *capture.Capture
}

// behindRouter gives a pool the cluster's router as its gateway, if there is one.
func (a *act) behindRouter(s *v1alpha1.IPPoolSpec) {
	if len(a.Options.Gateways) > 0 {
		gateway := a.Options.Gateways[0].Addr().String()
		s.Gateway = &gateway
	}
}

// openDoor checks that node and pod reach each other, so that their silence means something later.
func (a *act) openDoor(ctx context.Context, pod *cluster.Pod) (*door, error) {
	d := &door{act: a, pod: pod, at: placeOfNode(pod.Node)}
	var err error
	if d.inside, err = a.placeOf(pod); err != nil {
		return nil, err
	}
	if d.management, err = a.CaptureManagement(); err != nil {
		return nil, err
	}
	a.after("end the capture of the management network", func(context.Context) error { _, err := d.management.Stop(); return err })
	err = eventually(ctx, eventLimit, "the way from pod "+pod.Name+" to its node", func(ctx context.Context) error {
		return d.inside.ping(ctx, nodeAddr(pod.Node, 0))
	})
	if err != nil {
		return nil, err
	}
	return d, d.leadsTo(ctx, pod)
}

// leadsTo waits until the node reaches the pod by the address.
func (d *door) leadsTo(ctx context.Context, pod *cluster.Pod) error {
	to := netip.AddrPortFrom(addressOf(d.pod), httpPort)
	return eventually(ctx, eventLimit, fmt.Sprintf("the way from %s to pod %s", d.at.name, pod.Name), func(ctx context.Context) error {
		got, err := d.at.get(ctx, to)
		if err == nil && got.pod != pod.Name {
			err = fmt.Errorf("pod %s answered", got.pod)
		}
		return err
	})
}

// isShut judges that since then the old pod reaches nothing by its host link, that none of its frames
// has left the node by the management network, and that its node reaches the new holder.
func (d *door) isShut(ctx context.Context, successor *cluster.Pod, since time.Time) error {
	if err := d.inside.ping(ctx, nodeAddr(d.pod.Node, 0)); err == nil {
		return fmt.Errorf("pod %s reaches its node by the host link, though its address was taken", d.pod.Name)
	}
	api := netip.AddrPortFrom(d.APIServerService(), 443)
	if conn, err := d.inside.dial(ctx, "tcp", api); err == nil {
		_ = conn.Close()
		return fmt.Errorf("pod %s reaches the API server by the host link, though its address was taken", d.pod.Name)
	}
	if err := d.leadsTo(ctx, successor); err != nil {
		return err
	}
	for _, f := range capture.SpokenFor(capture.After(d.management.Frames(), since), addressOf(d.pod)) {
		if f.Port == "mgmt-"+d.pod.Node.Name() {
			return fmt.Errorf("a frame of pod %s left by the management network: %s", d.pod.Name, f)
		}
	}
	d.story.Say("By its host link, pod %s reaches neither its node nor the API server. Its node reaches pod %s by the address.", d.pod.Name, successor.Name)
	return nil
}
