// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/audit"
)

const (
	// tailLines is the number of lines that are read of each log.
	tailLines = 20000
	// mostLogs is the greatest number of agents whose logs are read.
	mostLogs = 50
	// readers is the number of logs that are read at the same time.
	readers = 8
)

// moment is an event or an audit line about an address.
type moment struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"`
	Kind   string    `json:"kind"`
	Text   string    `json:"text"`
}

// pastOf returns events and audit lines about an address, the oldest first.
func pastOf(ctx context.Context, c *cluster.Cluster, st story) ([]moment, error) {
	isAbout := func(e *eventsv1.Event) bool {
		return e.Regarding.Kind == "IPLease" || strings.Contains(e.Note, st.Address)
	}
	name := st.Address
	if st.Lease != nil {
		name = st.Lease.Name
	}
	past, err := eventsOf(ctx, c, corev1.NamespaceDefault, name, isAbout)
	if err != nil {
		return nil, err
	}
	if st.Lease != nil && st.Lease.Spec.Holder != nil && st.Lease.Spec.Holder.Pod != "" {
		ofPod, err := eventsOf(ctx, c, st.Lease.Spec.Holder.Namespace, st.Lease.Spec.Holder.Pod, isAbout)
		if err != nil {
			return nil, err
		}
		past = append(past, ofPod...)
	}
	lines, err := auditOf(ctx, c, st)
	if err != nil {
		return nil, err
	}
	past = append(past, lines...)
	slices.SortStableFunc(past, func(a, b moment) int { return a.Time.Compare(b.Time) })
	return past, nil
}

// eventsOf returns the events about the objects of a name that are wanted.
func eventsOf(ctx context.Context, c *cluster.Cluster, namespace, name string, want func(*eventsv1.Event) bool) ([]moment, error) {
	var events eventsv1.EventList
	err := c.MayList(ctx, "events of namespace "+namespace, &events, client.InNamespace(namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("regarding.name", name)})
	said := []moment{}
	for i := range events.Items {
		if e := &events.Items[i]; want(e) {
			said = append(said, moment{lastOf(e), strings.TrimPrefix(e.ReportingController, "fenceline-"), e.Reason, e.Note})
		}
	}
	return said, err
}

// lastOf returns the time at which an event was last seen.
func lastOf(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.DeprecatedLastTimestamp.Time
}

// auditOf returns the audit lines about an address in the logs of the controller and of the agents.
// With a lease, it reads only the agents of its node and of its previous holder's node.
func auditOf(ctx context.Context, c *cluster.Cluster, st story) ([]moment, error) {
	agents, controllers, err := c.Programs(ctx)
	if err != nil {
		return nil, err
	}
	if st.Lease != nil {
		nodes := []string{st.Lease.Spec.NodeName}
		if p := st.Lease.Spec.Previous; p != nil {
			nodes = append(nodes, p.Node)
		}
		agents = slices.DeleteFunc(agents, func(p podview.Pod) bool { return !slices.Contains(nodes, p.Spec.NodeName) })
	}
	agents = agents[:min(len(agents), mostLogs)]
	var all []moment
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, pod := range slices.Concat(controllers, agents) {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, cluster.AnswerLimit)
			defer cancel()
			defer func() {
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					c.NoAnswer("log of " + sourceOf(pod))
				}
			}()
			log, err := c.Kube.CoreV1().Pods(c.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](tailLines)}).Stream(ctx)
			if apierrors.IsForbidden(err) {
				return c.MayLack("logs of namespace "+c.Namespace, err)
			}
			if err != nil {
				return nil // a pod that has not started has no log
			}
			defer log.Close()
			lines := auditLines(log, sourceOf(pod), st.Address)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, lines...)
			return nil
		})
	}
	return all, group.Wait()
}

// sourceOf names a pod of Fenceline.
func sourceOf(pod podview.Pod) string {
	if component := pod.Labels["app.kubernetes.io/component"]; component != "agent" {
		return component
	}
	return "agent " + pod.Spec.NodeName
}

// auditLines returns the audit lines about an address in a log.
func auditLines(log io.Reader, source, address string) []moment {
	var found []moment
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(address)) {
			continue
		}
		var l struct {
			Time      time.Time
			Logger    string
			Msg       string
			Address   string
			Namespace string
			Pod       string
			Node      string
			MAC       string
			Token     uint64
			Reason    string
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Address != address || !slices.Contains(audit.Kinds(), audit.Kind(l.Msg)) {
			continue
		}
		pod := "pod " + l.Namespace + "/" + l.Pod
		if l.Pod == "" {
			pod = "no pod"
		}
		if source != "agent "+l.Node { // the agent that verifies is not that of the holder
			pod += " on node " + cmp.Or(l.Node, "unknown")
		}
		text := fmt.Sprintf("%s, MAC %s, token %d", pod, cmp.Or(l.MAC, "unknown"), l.Token)
		if l.Reason != "" {
			text = l.Reason + ": " + text
		}
		found = append(found, moment{l.Time, source, l.Msg, text})
	}
	return found
}

func (st story) writePast(w paper) {
	if len(st.Past) == 0 {
		return
	}
	fmt.Fprintln(w, "\nHistory (events, and audit lines of the logs that are still there):")
	var rows [][]string
	for _, m := range st.Past {
		rows = append(rows, []string{"  " + m.Time.UTC().Format(time.RFC3339), m.Kind, m.Source, m.Text})
	}
	w.table([]string{"  TIME", "WHAT", "BY", "DETAILS"}, rows)
}
