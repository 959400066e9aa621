// SPDX-License-Identifier: Apache-2.0

//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

const (
	few       = 100
	manyNodes = 100
	// heapGoal is for one lease with its pod, in bytes.
	heapGoal = 2100
)

// TestHeapOfManyLeases prints what the controller keeps in memory of 50 000 pods
// with a lease each, after it has looked at all of them.
func TestHeapOfManyLeases(t *testing.T) {
	w, server := newWorld(t)
	for i := range manyNodes {
		w.readyNode(nodeOf(i))
	}
	w.pool("many", "10.0.0.0/8")
	many := figure.Size(50000, 5000)
	before := w.heapWith(t, server.Admin(), few)
	after := w.heapWith(t, server.Admin(), many)
	each := (after - before) / float64(many-few)
	t.Logf("heap with %d leases and their pods: %.1f MB, with %d: %.1f MB", few, before/1e6, many, after/1e6)
	figure.Report(t, "a lease with its pod in the controller", each, "bytes", figure.AtMost(heapGoal))
	// Few leases share the buckets of an index (controller/cache), so a small benchmark is near the limit.
	check.That(t, testing.Short() || each <= heapGoal, "one lease with its pod takes %.0f bytes, want at most %d", each, heapGoal)
}

// heapWith runs a controller until it has looked at n leases, and returns its heap in bytes.
func (w world) heapWith(t *testing.T, config *rest.Config, n int) float64 {
	t.Helper()
	looked := w.reconciles(t)
	proxy := httptest.NewServer(w.crowd(t, config, n))
	defer proxy.Close()
	stop := w.runController(&rest.Config{Host: proxy.URL}, policy(), clock.RealClock{})
	defer stop()
	w.eventuallyWithin(5*time.Minute, "a look at each lease", func() error {
		looks := w.reconciles(t) - looked
		return unless(looks >= n, "looked %d times", looks)
	})
	// The second collection frees what the first one's finalizers let go.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// reconciles counts the looks at leases since the process began.
func (w world) reconciles(t *testing.T) int {
	t.Helper()
	families := check.Value(reconcileMetrics.Gather())(t)
	total := 0.0
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "controller" && l.GetValue() == "reclaim" {
					total += m.GetCounter().GetValue()
				}
			}
		}
	}
	return int(total)
}

// reconcileMetrics is where controller-runtime counts, which worlds leave alone.
var reconcileMetrics = ctrlmetrics.Registry

func nodeOf(i int) string { return fmt.Sprintf("node-%02d", i%manyNodes) }

// crowd is the API server with n pods and leases that it does not have: their
// lists are made while they are read, so that only the controller keeps them.
func (w world) crowd(t *testing.T, config *rest.Config, n int) http.Handler {
	t.Helper()
	target := check.Value(url.Parse(config.Host))(t)
	rest := check.Value(rest.TransportFor(config))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = rest, -1
	serve := func(kind, version string, object func(int) any) http.HandlerFunc {
		return func(answer http.ResponseWriter, request *http.Request) {
			answer.Header().Set("Content-Type", "application/json")
			if request.URL.Query().Get("watch") == "" {
				writeList(answer, kind, version, n, object)
				return
			}
			if request.URL.Query().Get("sendInitialEvents") == "true" {
				// The client falls back to a list.
				answer.WriteHeader(http.StatusUnprocessableEntity)
				fmt.Fprint(answer, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
				return
			}
			answer.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(answer).Flush() // the watch has begun, and nothing happens
			<-request.Context().Done()
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("GET /apis/fenceline.io/v1alpha1/ipleases", serve("IPLeaseList", "fenceline.io/v1alpha1", func(i int) any { return crowdLease(i) }))
	mux.HandleFunc("GET /api/v1/pods", serve("PodList", "v1", func(i int) any { return crowdPod(i) }))
	return mux
}

func writeList(to io.Writer, kind, version string, n int, object func(int) any) {
	fmt.Fprintf(to, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1000000"},"items":[`, kind, version)
	for i := range n {
		if i > 0 {
			fmt.Fprint(to, ",")
		}
		if err := json.NewEncoder(to).Encode(object(i)); err != nil {
			return // the client has gone
		}
	}
	fmt.Fprint(to, "]}")
}

func uidOf(kind, i int) types.UID {
	return types.UID(fmt.Sprintf("7a3f1c2e-%04d-4000-8000-%012d", kind, i))
}

// written is what writers of an object leave on it.
func written(by string) []metav1.ManagedFieldsEntry {
	fields := `{"f:spec":{` + strings.Repeat(`"f:address":{},`, 30) + `"f:pool":{}}}`
	return []metav1.ManagedFieldsEntry{{
		Manager: by, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: ptr.To(metav1.Now()),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
}

func crowdPodName(i int) string { return fmt.Sprintf("frontend-7d4b9c6f85-%05d", i) }

func crowdLease(i int) *v1alpha1.IPLease {
	address := fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, i%250+1)
	return &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{
			Name: address, UID: uidOf(1, i), ResourceVersion: fmt.Sprint(100000 + i), Generation: 1,
			CreationTimestamp: metav1.Now(), ManagedFields: written("fenceline-agent"),
		},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: "many", Parent: "ens1f0.100", State: v1alpha1.StateBound, Since: metav1.Now(),
			NodeName: nodeOf(i), Session: string(uidOf(3, i%manyNodes)) + "/" + string(uidOf(4, i%manyNodes)),
			Holder: &v1alpha1.Holder{
				Namespace: fmt.Sprintf("team-%02d", i%40), Pod: crowdPodName(i), PodUID: string(uidOf(2, i)), Interface: "eth0",
				ContainerID: fmt.Sprintf("%064x", i), MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255), Guarded: true,
				OwnerKind: "ReplicaSet", OwnerName: "frontend-7d4b9c6f85",
			},
		},
	}
}

func crowdPod(i int) *corev1.Pod {
	container := corev1.Container{
		Name: "main", Image: "registry.example/shop/frontend:1.2.3", Command: []string{"/frontend", "--listen=:8080"},
		Env: []corev1.EnvVar{{Name: "REGION", Value: "east"}, {Name: "LEVEL", Value: "info"}},
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%02d", i%40), Name: crowdPodName(i), GenerateName: "frontend-7d4b9c6f85-", UID: uidOf(2, i),
			ResourceVersion: fmt.Sprint(200000 + i), CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{"app": "frontend", "pod-template-hash": "7d4b9c6f85"},
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/network-status": strings.Repeat("status ", 60)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "frontend-7d4b9c6f85", UID: uidOf(5, 0), Controller: ptr.To(true),
			}},
			ManagedFields: written("kubelet"),
		},
		Spec: corev1.PodSpec{
			NodeName: nodeOf(i), TerminationGracePeriodSeconds: ptr.To[int64](30), Containers: []corev1.Container{container, container},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.1.1", HostIP: "192.0.2.1", StartTime: ptr.To(metav1.Now()),
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + strings.Repeat("a", 64), Image: container.Image}},
		},
	}
}
