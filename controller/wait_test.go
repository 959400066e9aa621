// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func (w world) waitGone(lease string) {
	w.Helper()
	w.eventually("end of lease "+lease, func() error {
		if l := w.lease(lease); l != nil {
			return fmt.Errorf("it is %s", l.Spec.State)
		}
		return nil
	})
}

// waitMessage waits until the lease carries the reason, and a message with the words.
func (w world) waitMessage(name string, reason v1alpha1.LeaseReason, words string) {
	w.Helper()
	w.eventually("message on lease "+name, func() error {
		l := w.lease(name)
		if l == nil {
			return errors.New("the lease is gone")
		}
		if l.Spec.Reason != reason || !strings.Contains(l.Spec.Message, words) {
			return fmt.Errorf("it says %s: %q", l.Spec.Reason, l.Spec.Message)
		}
		return nil
	})
}

// waitEvent waits for an event about an object of that name, with all the words.
func (w world) waitEvent(namespace, reason, about string, words ...string) {
	w.Helper()
	w.waitEventAbout(namespace, reason, about, func(o corev1.ObjectReference) bool { return o.Name == about }, words)
}

// waitEventOf waits for an event about an object that kubectl describe shows: it names the UID.
func (w world) waitEventOf(o client.Object, reason string, words ...string) {
	w.Helper()
	w.waitEventAbout(o.GetNamespace(), reason, o.GetName(), func(about corev1.ObjectReference) bool { return about.UID == o.GetUID() }, words)
}

func (w world) waitEventAbout(namespace, reason, name string, is func(corev1.ObjectReference) bool, words []string) {
	w.Helper()
	w.eventually(fmt.Sprintf("event %s about %s", reason, name), func() error {
		var list eventsv1.EventList
		if err := w.client.List(w.ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var heard []string
		for _, e := range list.Items {
			if e.Reason != reason || !is(e.Regarding) {
				continue
			}
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Note, word) }) {
				return nil
			}
			heard = append(heard, e.Note)
		}
		return fmt.Errorf("heard %q", heard)
	})
}

// waitMetric waits until the series, "name label=value label=value", has a value that is right.
func (w world) waitMetric(series string, right func(float64) bool) {
	w.Helper()
	w.eventually("metric "+series, func() error {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.Metric {
				key := f.GetName()
				for _, l := range m.Label {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
				if key == series && right(value) {
					return nil
				}
				if key == series {
					return fmt.Errorf("it is %v", value)
				}
			}
		}
		return errors.New("there is none")
	})
}
