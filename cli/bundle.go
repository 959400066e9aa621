// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/fault"
	"github.com/fenceline/fenceline/controller/podview"
)

// bundle is what an archive for a support case has, by the names of its files.
type bundle struct {
	// documents are written as YAML. They are made of maps, lists and values.
	documents map[string]any
	mu        sync.Mutex
	logs      map[string]string
}

// readBundle reads what a support case needs, as far as the reader may: the answers of doctor, status and
// version, the reports of agents, records, nodes, events about them, and the objects of Fenceline with their logs. It reads
// no Secret.
func readBundle(ctx context.Context, c *cluster.Cluster, e *fault.Cluster) (*bundle, error) {
	b := &bundle{documents: map[string]any{}, logs: map[string]string{}}
	status, err := readState(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	builds, err := readVersions(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	faults := e.Faults()
	for name, answer := range map[string]any{
		"doctor": diagnosed{len(e.Nodes), len(e.Reports), faults}, "status": status, "version": builds, "agents": append([]fault.Report{}, e.Reports...),
	} {
		if b.documents[name], err = tree(answer); err != nil {
			return nil, err
		}
	}
	for _, kind := range []struct {
		file, group, version, list string
		ours                       bool
	}{
		{"pools", "fenceline.io", "v1alpha1", "IPPoolList", false}, {"subnets", "fenceline.io", "v1alpha1", "IPSubnetList", false},
		{"leases", "fenceline.io", "v1alpha1", "IPLeaseList", false}, {"reservations", "fenceline.io", "v1alpha1", "ReservedIPList", false},
		{"hints", "fenceline.io", "v1alpha1", "LeaseHintList", false}, {"moves", "fenceline.io", "v1alpha1", "MoveList", false},
		{"definitions", "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinitionList", false},
		{"nodes", "", "v1", "NodeList", false}, {"events", "events.k8s.io", "v1", "EventList", false},
		{"programs/pods", "", "v1", "PodList", true}, {"programs/configmaps", "", "v1", "ConfigMapList", true},
		{"programs/daemonsets", "apps", "v1", "DaemonSetList", true}, {"programs/deployments", "apps", "v1", "DeploymentList", true},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.list})
		var options []client.ListOption
		if kind.ours {
			options = []client.ListOption{client.InNamespace(c.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "fenceline"}}
		}
		if err := c.MayList(ctx, kind.file, list, options...); err != nil && !meta.IsNoMatchError(errors.Unwrap(err)) {
			return nil, err
		}
		items := []any{}
		for i := range list.Items {
			items = append(items, list.Items[i].Object)
		}
		b.documents[kind.file] = items
	}
	b.leaveOutForeignEvents(c.Namespace)
	if err := b.readLogs(ctx, c, e, faults); err != nil {
		return nil, err
	}
	if b.documents["unread"], err = tree(slices.Concat([]string{}, c.Unread(), c.Missed())); err != nil {
		return nil, err
	}
	b.leaveOutSecrets()
	return b, nil
}

// leaveOutForeignEvents keeps the events that come from Fenceline, name it, or concern its objects, nodes and pods with leases.
func (b *bundle) leaveOutForeignEvents(namespace string) {
	events, _ := b.documents["events"].([]any)
	leases, _ := b.documents["leases"].([]any)
	holders := map[string]bool{}
	for _, lease := range leases {
		holders[textAt(lease, "spec", "holder", "namespace")+"/"+textAt(lease, "spec", "holder", "pod")] = true
	}
	b.documents["events"] = slices.DeleteFunc(events, func(e any) bool {
		kind, in, name := textAt(e, "regarding", "kind"), textAt(e, "regarding", "namespace"), textAt(e, "regarding", "name")
		return !isOfFenceline(e) && kind != "Node" && (kind != "Pod" || !holders[in+"/"+name]) && (in != namespace || !strings.HasPrefix(name, "fenceline-")) &&
			!strings.HasPrefix(textAt(e, "regarding", "apiVersion"), "fenceline.io/") && !strings.Contains(textAt(e, "note"), "fenceline")
	})
}

// isOfFenceline reports whether an event comes from Fenceline.
func isOfFenceline(event any) bool {
	return strings.HasPrefix(textAt(event, "reportingController"), "fenceline-")
}

// textAt returns a text in an object, or "".
func textAt(object any, path ...string) string {
	fields, _ := object.(map[string]any)
	found, _, _ := unstructured.NestedString(fields, path...)
	return found
}

// tree returns an answer as maps, lists and values.
func tree(answer any) (of any, err error) {
	data, err := yaml.Marshal(answer)
	if err == nil {
		err = yaml.Unmarshal(data, &of)
	}
	return of, err
}

// readLogs reads the logs of the controllers and of up to mostLogs agents, those of nodes with faults first.
func (b *bundle) readLogs(ctx context.Context, c *cluster.Cluster, e *fault.Cluster, faults []fault.Fault) error {
	said := fmt.Sprint(faults)
	var faulty, others []podview.Pod
	for _, pod := range e.Agents {
		if strings.Contains(said, "node "+pod.Spec.NodeName) {
			faulty = append(faulty, pod)
		} else {
			others = append(others, pod)
		}
	}
	agents := slices.Concat(faulty, others)
	if n := len(agents) - mostLogs; n > 0 {
		c.Miss(fmt.Sprintf("the logs of %d agents", n), fmt.Errorf("a bundle has at most %d", mostLogs))
		agents = agents[:mostLogs]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, pod := range append(slices.Clone(e.Controllers), agents...) {
		for ending, previous := range map[string]bool{".log": false, ".previous.log": true} {
			group.Go(func() error {
				log, err := b.readLog(ctx, c, pod.Name, previous)
				if apierrors.IsForbidden(err) {
					return c.MayLack("logs of namespace "+c.Namespace, err)
				}
				if err != nil {
					c.Miss("the log of "+sourceOf(pod)+", or its end", err)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(log) > 0 {
					b.logs["logs/"+pod.Name+ending] = string(log)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// readLog returns the end of a log, also with an error.
func (b *bundle) readLog(ctx context.Context, c *cluster.Cluster, pod string, previous bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.AnswerLimit)
	defer cancel()
	log, err := openLog(ctx, c, pod, previous)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return io.ReadAll(log)
}

// write writes the archive to a file that does not exist, readable by its owner only. It returns the number of its files.
func (b *bundle) write(file string, at time.Time) (int, error) {
	files := map[string][]byte{}
	for name, document := range b.documents {
		text, err := yaml.Marshal(document)
		if err != nil {
			return 0, fmt.Errorf("write %s.yaml: %w", name, err)
		}
		files[name+".yaml"] = text
	}
	for name, log := range b.logs {
		files[name] = []byte(log)
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: path.Join("fenceline", name), Mode: 0o600, Size: int64(len(files[name])), ModTime: at}
		if err := w.WriteHeader(header); err != nil {
			return 0, fmt.Errorf("write the bundle: %w", err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return 0, fmt.Errorf("write the bundle: %w", err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return 0, fmt.Errorf("write the bundle: %w", err)
	}
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write the bundle: %w", err)
	}
	_, err = to.Write(out.Bytes())
	return len(files), errors.Join(err, to.Close())
}
