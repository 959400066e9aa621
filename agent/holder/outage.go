// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	// askFirst bounds the question of an ADD whether the API server answers, before anything says that it
	// does not. askAgain bounds it in a known outage: the server may be back.
	askFirst = time.Second
	askAgain = 500 * time.Millisecond
	// askWithout bounds it for a pod that cannot have its addresses without the server.
	askWithout = 2 * time.Second
)

// outage is the present outage of the API server, as an ADD meets it.
type outage struct {
	since time.Time
	err   error
}

// reach asks the API server for the node, if it does not answer other requests, or if an older sandbox of the
// pod lives here. It returns nil if the server answers, and otherwise the outage: the ADD then takes no slot
// and writes nothing, however often the runtime tries (R5).
func (h *Holders) reach(ctx context.Context, r agentapi.AddRequest) *outage {
	since, away := h.Outage()
	_, older := h.older(r)
	var patience time.Duration
	switch {
	case older && away:
		patience = askAgain
	case older:
		patience = askFirst
	case away:
		patience = askWithout
	default:
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := h.Reader.Get(soon, client.ObjectKey{Name: h.Self.Name}, &corev1.Node{})
	if ctx.Err() != nil || !lease.IsUnavailable(err) {
		return nil
	}
	if !away {
		since = h.Clock.Now()
	}
	return &outage{since, err}
}

// older returns the entry of the newest older sandbox of the pod of an ADD that may have the addresses of
// its interface. An ADD without a UID of the pod has none: only the UID shows that the pod is the same.
func (h *Holders) older(r agentapi.AddRequest) (e attachment.Entry, ok bool) {
	if r.Pod.UID == "" {
		return e, false
	}
	for _, o := range h.Attachments.OfPod(r.Pod.UID) {
		if o.Interface == r.Interface && o.ContainerID != r.ContainerID && o.Phase != attachment.Intent && len(o.Addresses) > 0 {
			e, ok = *o, true
		}
	}
	return e, ok
}

// addWithout is an ADD while the API server is away. The next sandbox of a pod that has its addresses here
// gets them. A pod that this node does not know gets none: the server has not agreed to it.
func (h *Holders) addWithout(ctx context.Context, r agentapi.AddRequest, o *outage) (*agentapi.AddResponse, error) {
	old, ok := h.older(r)
	if !ok {
		return nil, refusal.New(refusal.TryAgain,
			"the API server has not answered since %s, and pod %s/%s has no address on this node that it could keep; "+
				"until the server answers, only next sandboxes of pods with an address here start, and DEL, CHECK and GC work: %w",
			o.since.UTC().Format(time.RFC3339), r.Pod.Namespace, r.Pod.Name, o.err)
	}
	defer h.Attachments.Calls.Lock(old.Attachment())()
	h.Attachments.Calls.BeginADD(r.Attachment)
	defer h.Attachments.Calls.EndADD(r.Attachment)
	// The DEL of the older sandbox may have ended meanwhile, or an earlier ADD of this one.
	if old, ok = h.Attachments.Get(old.ContainerID, old.Interface); !ok {
		return nil, refusal.New(refusal.TryAgain, "the older sandbox of pod %s/%s has just been released; the next try chooses anew", r.Pod.Namespace, r.Pod.Name)
	}
	if _, again := h.Attachments.Get(r.ContainerID, r.Interface); again {
		return nil, refusal.New(refusal.TryAgain, "an earlier ADD of this sandbox is to be undone, and the API server does not answer: %w", o.err)
	}
	a := &add{h: h, request: r, who: v1alpha1.Holder{Namespace: r.Pod.Namespace, Pod: r.Pod.Name, Interface: r.Interface}}
	if err := a.locate(); err != nil {
		return nil, err
	}
	res, err := h.Acquirer.Move(ctx, acquire.Move{Call: r, Link: a.link, Segment: a.segment, From: old})
	if err != nil {
		return nil, err
	}
	h.Log.Info("the addresses of a pod have moved to its next sandbox while the API server is away", "pod", r.Pod.Namespace+"/"+r.Pod.Name,
		"interface", r.Interface, "from", old.ContainerID, "to", r.ContainerID, "since", o.since)
	h.granted(&res.Entry)
	h.After.put(res)
	h.Attachments.Pending.Add(r.Attachment)
	return answer(res.Won), nil
}
