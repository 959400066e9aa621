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
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/audit"
)

const (
	// tailLines is the number of lines that are read of each log.
	tailLines = 20000
	// mostLogs is the greatest number of agents whose logs are read unasked.
	mostLogs = 50
	// readers is the number of logs that are read at the same time.
	readers = 8
	// mostNames is the greatest number of nodes that a sentence names.
	mostNames = 10
)

// moment is an event or an audit line about an address.
type moment struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"`
	Kind   string    `json:"kind"`
	Text   string    `json:"text"`
}

// logs has the nodes whose agents' logs were read to their end, and the others.
type logs struct {
	Read   []string `json:"read"`
	Unread []string `json:"unread"`
	// isAll tells that all logs were asked for.
	isAll bool
}

// readHistory returns events and audit lines about an address on a network, the oldest first, and which logs of
// agents it has read: with allNodes all of them, else those of the nodes that the lease names. Without a
// lease these are the first mostLogs.
func readHistory(ctx context.Context, c *cluster.Cluster, network string, addr netip.Addr, lease *v1alpha1.IPLease, reservation string, allNodes bool) ([]moment, *logs, error) {
	name, address := v1alpha1.LeaseName(network, addr), addr.String()
	isAbout := func(e *eventsv1.Event) bool {
		return e.Regarding.Kind == "IPLease" || isNamed(e.Note, address) || isNamed(e.Note, name)
	}
	past, err := eventsOf(ctx, c, corev1.NamespaceDefault, name, isAbout)
	if err != nil {
		return nil, nil, err
	}
	if lease != nil && lease.Spec.Holder != nil && lease.Spec.Holder.Pod != "" {
		ofPod, err := eventsOf(ctx, c, lease.Spec.Holder.Namespace, lease.Spec.Holder.Pod, isAbout)
		if err != nil {
			return nil, nil, err
		}
		past = append(past, ofPod...)
	}
	if reservation != "" {
		ofReservation, err := eventsOf(ctx, c, corev1.NamespaceDefault, reservation, func(e *eventsv1.Event) bool {
			return e.Regarding.Kind == "ReservedIP" && isNamed(e.Note, address)
		})
		if err != nil {
			return nil, nil, err
		}
		past = append(past, ofReservation...)
	}
	agents, controllers, err := c.Programs(ctx)
	if err != nil {
		return nil, nil, err
	}
	asked := agents
	if !allNodes {
		asked = likely(agents, lease)
	}
	lines, read, err := auditOf(ctx, c, slices.Concat(controllers, asked), line{Address: address, Network: network})
	if err != nil {
		return nil, nil, err
	}
	logs := logsOf(agents, read)
	logs.isAll = allNodes
	past = slices.Concat(past, lines)
	slices.SortStableFunc(past, func(a, b moment) int { return a.Time.Compare(b.Time) })
	return past, logs, nil
}

// likely returns the agents of a lease's node and of its previous holder's node, or some without a lease.
func likely(agents []podview.Pod, lease *v1alpha1.IPLease) []podview.Pod {
	if lease == nil {
		return agents[:min(len(agents), mostLogs)]
	}
	nodes := []string{lease.Spec.NodeName}
	if p := lease.Spec.Previous; p != nil {
		nodes = append(nodes, p.Node)
	}
	return slices.DeleteFunc(slices.Clone(agents), func(p podview.Pod) bool { return !slices.Contains(nodes, p.Spec.NodeName) })
}

// logsOf divides the nodes of agents by the names of the pods whose logs were read.
func logsOf(agents []podview.Pod, read []string) *logs {
	r := &logs{Read: []string{}, Unread: []string{}}
	for _, a := range agents {
		if slices.Contains(read, a.Name) {
			r.Read = append(r.Read, a.Spec.NodeName)
		} else {
			r.Unread = append(r.Unread, a.Spec.NodeName)
		}
	}
	slices.Sort(r.Read)
	slices.Sort(r.Unread)
	return r
}

// eventsOf returns the events about the objects of a name that are wanted.
func eventsOf(ctx context.Context, c *cluster.Cluster, namespace, name string, want func(*eventsv1.Event) bool) ([]moment, error) {
	var events eventsv1.EventList
	err := c.MayList(ctx, "events of namespace "+namespace, &events, client.InNamespace(namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("regarding.name", name)})
	said := []moment{}
	for i := range events.Items {
		if e := &events.Items[i]; want(e) {
			said = append(said, moment{lastSeen(e), strings.TrimPrefix(e.ReportingController, "fenceline-"), e.Reason, e.Note})
		}
	}
	return said, err
}

// isNamed tells whether a note has an address, or the name of a lease, as a whole word.
func isNamed(note, name string) bool {
	isEdge := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".:-", r)
	}
	for word := range strings.FieldsFuncSeq(note, isEdge) {
		if mark, ok := strings.CutPrefix(word, name); ok && strings.Trim(mark, ".:-") == "" {
			return true
		}
	}
	return false
}

// lastSeen returns the time at which an event was last seen.
func lastSeen(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.DeprecatedLastTimestamp.Time
}

// line is an audit line.
type line struct {
	Time      time.Time
	Msg       string
	Address   string
	Network   string
	Namespace string
	Pod       string
	Node      string
	MAC       string
	Token     uint64
	Reason    string
}

// auditOf returns the audit lines about an address in the logs of pods, and the names of the pods
// whose logs it has read to their end. It notes the others.
func auditOf(ctx context.Context, c *cluster.Cluster, pods []podview.Pod, about line) (all []moment, read []string, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, pod := range pods {
		group.Go(func() error {
			lines, err := auditOfPod(ctx, c, pod, about)
			if apierrors.IsForbidden(err) {
				return c.MayLack("logs of namespace "+c.Namespace, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, lines...)
			if err == nil {
				read = append(read, pod.Name)
				return nil
			}
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("it did not come within %v", cluster.AnswerLimit)
			}
			c.Miss("the log of "+sourceOf(pod)+", or its end", err)
			return nil
		})
	}
	return all, read, group.Wait()
}

// auditOfPod is auditOf for one pod. It returns what it has read also with an error.
func auditOfPod(ctx context.Context, c *cluster.Cluster, pod podview.Pod, about line) ([]moment, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.AnswerLimit)
	defer cancel()
	log, err := openLog(ctx, c, pod.Name, false)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return auditLines(log, sourceOf(pod), about)
}

// openLog opens the last tailLines of a log, or of that of the process before it.
func openLog(ctx context.Context, c *cluster.Cluster, pod string, previous bool) (io.ReadCloser, error) {
	o := &corev1.PodLogOptions{TailLines: ptr.To[int64](tailLines), Previous: previous}
	log, err := c.Kube.CoreV1().Pods(c.Namespace).GetLogs(pod, o).Stream(ctx)
	if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		return http.NoBody, nil // a pod that has not started, or is gone, has no log
	}
	return log, err
}

// sourceOf names a pod of Fenceline.
func sourceOf(pod podview.Pod) string {
	if component := pod.Labels["app.kubernetes.io/component"]; component != "agent" {
		return component
	}
	return "agent " + pod.Spec.NodeName
}

// auditLines returns the audit lines about an address on a network in a log, also of one that breaks off.
func auditLines(log io.Reader, source string, about line) ([]moment, error) {
	var found []moment
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(about.Address)) {
			continue
		}
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Address != about.Address || l.Network != about.Network || !slices.Contains(audit.Kinds(), audit.Kind(l.Msg)) {
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
	return found, lines.Err()
}

// sentence says which logs of agents were read.
func (l logs) sentence() string {
	said := "Logs of agents read: " + named(l.Read) + "."
	if len(l.Unread) > 0 {
		said += " Not read: " + named(l.Unread) + "."
		if !l.isAll {
			said += fmt.Sprintf(" --all-nodes reads all %d.", len(l.Read)+len(l.Unread))
		}
	}
	return said
}

// named names nodes, or counts them if they are many.
func named(nodes []string) string {
	switch {
	case len(nodes) == 0:
		return "none"
	case len(nodes) > mostNames:
		return fmt.Sprintf("those of %d nodes", len(nodes))
	}
	return strings.Join(nodes, ", ")
}
