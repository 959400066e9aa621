// SPDX-License-Identifier: Apache-2.0

package scenario

import (
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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/poolset"
)

// spiderFinalizer is the finalizer of each SpiderEndpoint.
const spiderFinalizer = "spiderpool.spidernet.io"

// spiderObject is an object of Spiderpool.
func spiderObject(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "spiderpool.spidernet.io", Version: "v2beta1", Kind: kind})
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// spiderRecord is an entry of status.allocatedIPs.
type spiderRecord struct {
	Pod string `json:"pod"`
	UID string `json:"podUid"`
}

// spiderIP is an entry of status.current.ips of a SpiderEndpoint.
type spiderIP struct {
	Interface    string `json:"interface"`
	IPv4         string `json:"ipv4,omitempty"`
	IPv6         string `json:"ipv6,omitempty"`
	IPv4Pool     string `json:"ipv4Pool,omitempty"`
	IPv6Pool     string `json:"ipv6Pool,omitempty"`
	Vlan         int64  `json:"vlan"`
	CleanGateway bool   `json:"cleanGateway"`
}

// spiderEndpoint is the status of a SpiderEndpoint.
type spiderEndpoint struct {
	Current struct {
		UID  string     `json:"uid"`
		Node string     `json:"node"`
		IPs  []spiderIP `json:"ips"`
	} `json:"current"`
	OwnerKind string `json:"ownerControllerType"`
	OwnerName string `json:"ownerControllerName"`
}

// spiderpool stands in for the agents and the collector of Spiderpool. It reads and writes the objects as they do, but for
// pods of a StatefulSet it only keeps them.
type spiderpool struct {
	*Stage
	mu sync.Mutex
}

// ServeHTTP answers a plugin.
func (s *spiderpool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any
	if err := attempt(func() { answer = s.answer(r.Context(), r.Header, value(io.ReadAll(r.Body))) }); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		answer = map[string]any{"cniVersion": "1.0.0", "code": 999, "msg": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(answer) // a plugin that has gone needs none
}

func (s *spiderpool) answer(ctx context.Context, env http.Header, stdin []byte) any {
	var config struct {
		CNIVersion string
		PrevResult json.RawMessage
		IPAM       struct {
			IPv4 []string `json:"default_ipv4_ippool"`
			IPv6 []string `json:"default_ipv6_ippool"`
		}
	}
	check(json.Unmarshal(stdin, &config))
	if env.Get("Plugin") == "coordinator" {
		return config.PrevResult
	}
	arguments := map[string]string{}
	for each := range strings.SplitSeq(env.Get("Arguments"), ";") {
		name, is, _ := strings.Cut(each, "=")
		arguments[name] = is
	}
	name := client.ObjectKey{Namespace: arguments["K8S_POD_NAMESPACE"], Name: arguments["K8S_POD_NAME"]}
	pod := &corev1.Pod{}
	err := client.IgnoreNotFound(s.api.Get(ctx, name, pod))
	check(err)
	switch env.Get("Command") {
	case "ADD":
		must(pod.UID != "", "pod %s does not exist", name)
		var ips []map[string]any
		is := spiderIP{Interface: env.Get("Interface")}
		if len(config.IPAM.IPv4) > 0 {
			is.IPv4Pool, is.IPv4 = s.allocate(ctx, config.IPAM.IPv4, pod)
			ips = append(ips, map[string]any{"address": is.IPv4})
		}
		if len(config.IPAM.IPv6) > 0 {
			is.IPv6Pool, is.IPv6 = s.allocate(ctx, config.IPAM.IPv6, pod)
			ips = append(ips, map[string]any{"address": is.IPv6})
		}
		s.enters(ctx, pod, is)
		return map[string]any{"cniVersion": config.CNIVersion, "ips": ips}
	case "DEL":
		e := spiderObject("SpiderEndpoint", name.Namespace, name.Name)
		err := s.api.Get(ctx, name, e)
		check(client.IgnoreNotFound(err))
		isAlive := pod.UID != "" && pod.DeletionTimestamp == nil
		if err == nil && !isAlive && statusOf(e).Current.UID == arguments["K8S_POD_UID"] && !s.isKept(ctx, e) {
			s.free(ctx, e)
		}
	}
	return map[string]any{}
}

// allocate gives a pod the first free address of the first SpiderIPPool that has one.
func (s *spiderpool) allocate(ctx context.Context, pools []string, pod *corev1.Pod) (pool, addr string) {
	reserved := &unstructured.UnstructuredList{}
	reserved.SetGroupVersionKind(spiderObject("SpiderReservedIPList", "", "").GroupVersionKind())
	check(s.api.List(ctx, reserved))
	var taken poolset.Set
	for i := range reserved.Items {
		taken = taken.Plus(rangesOf(&reserved.Items[i], "ips"))
	}
	for _, pool := range pools {
		s.edit(ctx, pool, func(o *unstructured.Unstructured, records map[string]spiderRecord) {
			addr = ""
			prefix, _, _ := unstructured.NestedString(o.Object, "spec", "subnet")
			bits := fmt.Sprintf("/%d", value(netip.ParsePrefix(prefix)).Bits())
			free := rangesOf(o, "ips").Minus(rangesOf(o, "excludeIPs")).Minus(taken)
			for text, record := range records {
				free = free.Minus(poolset.Of(value(netip.ParseAddr(text))))
				if record.UID == string(pod.UID) {
					addr = text + bits
				}
			}
			if isOff, _, _ := unstructured.NestedBool(o.Object, "spec", "disable"); addr == "" && free.Len() > 0 && !isOff {
				records[free.At(0).String()] = spiderRecord{pod.Namespace + "/" + pod.Name, string(pod.UID)}
				addr = free.At(0).String() + bits
			}
		})
		if addr != "" {
			return pool, addr
		}
	}
	fail("all IP addresses of the SpiderIPPools %v are used out", pools)
	return "", ""
}

// rangesOf returns a list of addresses of a spec.
func rangesOf(o *unstructured.Unstructured, field string) poolset.Set {
	all, _, _ := unstructured.NestedStringSlice(o.Object, "spec", field)
	return value(poolset.Parse(all))
}

// edit changes the records of a SpiderIPPool.
func (s *spiderpool) edit(ctx context.Context, pool string, change func(*unstructured.Unstructured, map[string]spiderRecord)) {
	did(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o := spiderObject("SpiderIPPool", "", pool)
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		text, _, _ := unstructured.NestedString(o.Object, "status", "allocatedIPs")
		records := map[string]spiderRecord{}
		check(json.Unmarshal([]byte(cmp.Or(text, "{}")), &records))
		change(o, records)
		written := string(value(json.Marshal(records)))
		if written == text {
			return nil
		}
		o.Object["status"] = map[string]any{
			"totalIPCount": rangesOf(o, "ips").Count(), "allocatedIPCount": int64(len(records)), "allocatedIPs": written,
		}
		return s.api.Status().Update(ctx, o)
	}), "change the records of SpiderIPPool %s", pool)
}

// enters records an interface of a pod in its SpiderEndpoint.
func (s *spiderpool) enters(ctx context.Context, pod *corev1.Pod, is spiderIP) {
	e := spiderObject("SpiderEndpoint", pod.Namespace, pod.Name)
	err := s.api.Get(ctx, client.ObjectKeyFromObject(e), e)
	check(client.IgnoreNotFound(err))
	status := statusOf(e)
	isNew := status.Current.UID == ""
	if isNew {
		status.OwnerKind, status.OwnerName = "Pod", pod.Name
		owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
		if c := metav1.GetControllerOf(pod); c != nil {
			status.OwnerKind, status.OwnerName = c.Kind, c.Name
		}
		if status.OwnerKind == "StatefulSet" {
			owner = nil // the next pod of its name finds it
		}
		e.SetOwnerReferences(owner)
		e.SetFinalizers([]string{spiderFinalizer})
		status.Current.UID, status.Current.Node = string(pod.UID), pod.Spec.NodeName
	}
	if status.Current.UID != string(pod.UID) || slices.ContainsFunc(status.Current.IPs, func(i spiderIP) bool { return i.Interface == is.Interface }) {
		return
	}
	status.Current.IPs = append(status.Current.IPs, is)
	var object any
	check(json.Unmarshal(value(json.Marshal(status)), &object))
	e.Object["status"] = object
	if isNew {
		check(s.api.Create(ctx, e))
	} else {
		check(s.api.Update(ctx, e))
	}
}

func statusOf(e *unstructured.Unstructured) (status spiderEndpoint) {
	check(json.Unmarshal(value(json.Marshal(e.Object["status"])), &status))
	return status
}

// isKept reports whether a SpiderEndpoint is one of a StatefulSet that exists.
func (s *spiderpool) isKept(ctx context.Context, e *unstructured.Unstructured) bool {
	status := statusOf(e)
	if status.OwnerKind != "StatefulSet" {
		return false
	}
	err := s.api.Get(ctx, client.ObjectKey{Namespace: e.GetNamespace(), Name: status.OwnerName}, &appsv1.StatefulSet{})
	check(client.IgnoreNotFound(err))
	return err == nil
}

// free frees all addresses of a SpiderEndpoint, and ends it.
func (s *spiderpool) free(ctx context.Context, e *unstructured.Unstructured) {
	status := statusOf(e)
	pools := map[string]bool{}
	for _, i := range status.Current.IPs {
		pools[i.IPv4Pool], pools[i.IPv6Pool] = true, true
	}
	delete(pools, "")
	for pool := range pools {
		s.edit(ctx, pool, func(_ *unstructured.Unstructured, records map[string]spiderRecord) {
			for addr, record := range records {
				if record.UID == status.Current.UID {
					delete(records, addr)
				}
			}
		})
	}
	check(client.IgnoreNotFound(s.api.Delete(ctx, e, client.Preconditions{UID: ptr.To(e.GetUID())})))
	check(client.IgnoreNotFound(s.api.Patch(ctx, e, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
}

// collect frees the addresses of pods that are gone. Its error names those that are left.
func (s *spiderpool) collect(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return attempt(func() {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(spiderObject("SpiderEndpointList", "", "").GroupVersionKind())
		check(s.api.List(ctx, all))
		var errs []error
		for i := range all.Items {
			e, pod := &all.Items[i], &corev1.Pod{}
			err := s.api.Get(ctx, client.ObjectKeyFromObject(e), pod)
			check(client.IgnoreNotFound(err))
			if string(pod.UID) == statusOf(e).Current.UID || s.isKept(ctx, e) {
				errs = append(errs, fmt.Errorf("SpiderEndpoint %s/%s is in use", e.GetNamespace(), e.GetName()))
				continue
			}
			s.free(ctx, e)
		}
		check(errors.Join(errs...))
	})
}
