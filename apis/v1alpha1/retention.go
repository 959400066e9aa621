package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the annotations that ask for a fixed address, without prefix.
const (
	AnnotationStaticIP    = "static-ip"
	AnnotationIPRetention = "ip-retention"
)

// MaxRetention is the longest duration that ip-retention may name. Longer is forever.
const MaxRetention = 87600 * time.Hour

// hours is a bare number.
var hours = regexp.MustCompile(`^[0-9]{1,6}$`)

// ParseRetention reads what the annotations of a pod, or of a StatefulSet's
// template, ask for. Nil means that they ask for nothing: addresses of a
// StatefulSet's pods are then kept while it owns their names.
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
		return 0, errors.New("it is no duration")
	case d < 0:
		return 0, errors.New("it is negative")
	case d > MaxRetention:
		return 0, fmt.Errorf("it is longer than %.0fh, which is what forever is for", MaxRetention.Hours())
	}
	// A lease has room for no more, as Go writes it.
	return d.Round(time.Second), nil
}

// lookUp returns an annotation with its full name. Ours wins over the other
// prefix. An empty value is none.
func lookUp(annotations map[string]string, name string) (key, value string) {
	for _, prefix := range []string{AnnotationPrefix, LegacyAnnotationPrefix} {
		key = prefix + name
		if value = annotations[key]; value != "" {
			return key, value
		}
	}
	return AnnotationPrefix + name, ""
}
