// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names, without prefix, of the annotations that request a fixed address.
const (
	AnnotationStaticIP    = "static-ip"
	AnnotationIPRetention = "ip-retention"
)

// MaxRetention is the longest duration of the annotation ip-retention. For a longer time, users
// write "forever".
const MaxRetention = 87600 * time.Hour

// hours matches a number without a unit.
var hours = regexp.MustCompile(`^[0-9]{1,6}$`)

// ParseRetention reads the retention from the annotations of a pod, or of a StatefulSet's template. Nil
// means that they have none. The address of a StatefulSet's pod is then retained while the StatefulSet
// owns the pod's name.
func ParseRetention(annotations map[string]string) (*LeaseRetention, error) {
	staticKey, static := lookUp(annotations, AnnotationStaticIP)
	key, retention := lookUp(annotations, AnnotationIPRetention)
	switch static {
	case "", "true", "false":
	default:
		return nil, fmt.Errorf("annotation %s is %.256q, expected true or false", staticKey, static)
	}
	switch {
	case static == "false" && retention != "":
		return nil, fmt.Errorf("annotation %s is %.256q, but %s is false: remove one of them", key, retention, staticKey)
	case retention == "forever", retention == "" && static == "true":
		return &LeaseRetention{Policy: RetainForever}, nil
	case retention == "":
		return nil, nil
	}
	d, err := parseDuration(retention)
	if err != nil {
		return nil, fmt.Errorf("annotation %s is %.256q, expected forever, a duration such as 48h, or a number of hours: %w", key, retention, err)
	}
	return &LeaseRetention{Policy: RetainFor, Duration: &metav1.Duration{Duration: d}}, nil
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

// lookUp returns the value of an annotation, with its full name. AnnotationPrefix takes precedence
// over LegacyAnnotationPrefix. An empty value counts as no annotation.
func lookUp(annotations map[string]string, name string) (key, value string) {
	for _, prefix := range []string{AnnotationPrefix, LegacyAnnotationPrefix} {
		key = prefix + name
		if value = annotations[key]; value != "" {
			return key, value
		}
	}
	return AnnotationPrefix + name, ""
}
