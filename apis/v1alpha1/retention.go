// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names, without prefix, of the annotations that request a fixed address.
const (
	AnnotationStaticIP    = "static-ip"
	AnnotationIPRetention = "ip-retention"
)

// The annotations of another IPAM that request a fixed address. They are aliases of the annotations
// above. The retention is a number of hours.
const (
	AliasStaticIP    = "network.beta.kubernetes.io/ucloud-statefulset-static-ip"
	AliasIPRetention = "network.beta.kubernetes.io/ucloud-statefulset-ip-claim-policy"
)

// keys returns the full names of an annotation. The first one that a pod has counts.
func keys(name, alias string) []string {
	return []string{AnnotationPrefix + name, LegacyAnnotationPrefix + name, alias}
}

// FixedAddressAnnotations returns the full names of all annotations that ParseFixedAddress reads.
func FixedAddressAnnotations() []string {
	return append(keys(AnnotationStaticIP, AliasStaticIP), keys(AnnotationIPRetention, AliasIPRetention)...)
}

// MaxRetention is the longest duration of the annotation ip-retention. For a longer time, users
// write "forever".
const MaxRetention = 87600 * time.Hour

// hours matches a number without a unit.
var hours = regexp.MustCompile(`^[0-9]{1,6}$`)

// FixedAddress is the request of annotations for an address that stays with the name of a pod. The
// zero value requests nothing.
type FixedAddress struct {
	// Static is the value of static-ip or its alias; nil without it.
	Static *bool
	// Key is the full name of the annotation with Static, or else of the annotation with Retention.
	Key string
	// Retention is nil if the annotations have none. The address of a StatefulSet's pod is then
	// retained while the StatefulSet owns the pod's name.
	Retention *LeaseRetention
}

// ParseFixedAddress reads the annotations of a pod, or of a StatefulSet's template.
// AnnotationPrefix takes precedence over LegacyAnnotationPrefix, and both over an alias.
func ParseFixedAddress(annotations map[string]string) (FixedAddress, error) {
	staticKey, static, staticRank := lookUp(annotations, keys(AnnotationStaticIP, AliasStaticIP))
	key, retention, rank := lookUp(annotations, keys(AnnotationIPRetention, AliasIPRetention))
	if static != "true" && staticRank > rank {
		// An annotation of lower precedence neither contradicts the retention nor makes it wrong.
		static = ""
	}
	var f FixedAddress
	switch static {
	case "":
		f.Key = key
	case "true", "false":
		f.Static, f.Key = ptr.To(static == "true"), staticKey
	default:
		return f, fmt.Errorf("annotation %s is %.256q, expected true or false", staticKey, static)
	}
	switch {
	case static == "false" && staticRank == rank:
		return f, fmt.Errorf("annotation %s is %.256q, but %s is false: remove one of them", key, retention, staticKey)
	case static == "false":
		return f, nil
	}
	var err error
	f.Retention, err = parseRetention(key, retention, static)
	if err != nil && staticRank < rank {
		f.Retention, err = &LeaseRetention{Policy: RetainForever}, nil
	}
	return f, err
}

// ParseRetention returns the retention of ParseFixedAddress.
func ParseRetention(annotations map[string]string) (*LeaseRetention, error) {
	f, err := ParseFixedAddress(annotations)
	return f.Retention, err
}

func parseRetention(key, retention, static string) (*LeaseRetention, error) {
	switch {
	case retention == "" && static == "true":
		return &LeaseRetention{Policy: RetainForever}, nil
	case retention == "":
		return nil, nil
	case key == AliasIPRetention && !hours.MatchString(retention):
		return nil, fmt.Errorf("annotation %s is %.256q, expected a number of hours", key, retention)
	case retention == "forever":
		return &LeaseRetention{Policy: RetainForever}, nil
	}
	d, err := parseDuration(retention)
	if err != nil {
		return nil, fmt.Errorf("annotation %s is %.256q, expected forever, a duration such as 48h, or a number of hours: %w", key, retention, err)
	}
	return &LeaseRetention{Policy: RetainFor, Duration: &metav1.Duration{Duration: d}}, nil
}

// ParseStatefulSetMode reads Prefer, Require or Off.
func ParseStatefulSetMode(text string) (StatefulSetMode, error) {
	switch mode := StatefulSetMode(text); mode {
	case StatefulSetPrefer, StatefulSetRequire, StatefulSetOff:
		return mode, nil
	}
	return "", fmt.Errorf("statefulSet is %q, want %s, %s or %s", text, StatefulSetPrefer, StatefulSetRequire, StatefulSetOff)
}

// Mode returns the treatment of the address of a StatefulSet's pod in a pool, and the setting that
// decides, for people. The pod's annotations come before the pool's field, and this field before
// byDefault, which is the chart's value. pool is nil if it does not exist.
func (f FixedAddress) Mode(pool *IPPool, byDefault StatefulSetMode) (mode StatefulSetMode, by string) {
	mode, by = byDefault, "statefulSet of the chart"
	if pool != nil && pool.Spec.StatefulSet != "" {
		mode, by = pool.Spec.StatefulSet, "statefulSet of pool "+pool.Name
	}
	by += " is " + string(mode)
	switch {
	case f.Static != nil && *f.Static:
		return StatefulSetRequire, "annotation " + f.Key + " is true"
	case f.Static != nil:
		return StatefulSetOff, "annotation " + f.Key + " is false"
	case f.Retention != nil && mode == StatefulSetOff:
		return StatefulSetPrefer, "the annotations of the pod have a retention"
	}
	return mode, by
}

func parseDuration(text string) (time.Duration, error) {
	if hours.MatchString(text) {
		text += "h"
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("it is not a duration")
	case d < 0:
		return 0, errors.New("it is negative")
	case d > MaxRetention:
		return 0, fmt.Errorf("it is longer than %.0fh: write forever instead", MaxRetention.Hours())
	}
	// The field of a lease has at most 16 characters, so fractions of a second do not fit.
	return d.Round(time.Second), nil
}

// lookUp returns the first annotation that has a value, and its rank among the keys. An empty value
// counts as no annotation.
func lookUp(annotations map[string]string, keys []string) (key, value string, rank int) {
	for rank, key := range keys {
		if value = annotations[key]; value != "" {
			return key, value, rank
		}
	}
	return keys[0], "", len(keys)
}
