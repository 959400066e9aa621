// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/internal/owner"
)

const (
	// remembered is the time for which an answer about an owner is used, while its pods stay the same.
	remembered = 30 * time.Second
	// askAgain is the time after which a question that failed is asked again.
	askAgain = 10 * time.Second
	// longestAnswer bounds a question, because one pass serves all IPSubnets.
	longestAnswer = 5 * time.Second
)

// question asks for the number of pods that an owner wants. A change of the owner's pods makes
// another question, because its scale has probably changed before.
type question struct {
	ref owner.Ref
	// newest is the UID of its newest pod, pods the number of its pods.
	newest types.UID
	pods   int
}

type answer struct {
	replicas int
	err      error
	at       time.Time
}

// answers are the API server's, about owners of other projects. The zero value is empty.
type answers struct {
	known map[question]answer
	// silent are the kinds with a question that was not answered in time in this pass.
	silent map[schema.GroupKind]error
}

// begin forgets the answers that are too old for a pass.
func (a *answers) begin(now time.Time) {
	if a.known == nil {
		a.known = map[question]answer{}
	}
	a.silent = map[schema.GroupKind]error{}
	maps.DeleteFunc(a.known, func(_ question, is answer) bool {
		if isPassing(is.err) {
			return now.Sub(is.at) >= askAgain
		}
		return now.Sub(is.at) >= remembered
	})
}

// ask returns a known answer, or gets one.
func (a *answers) ask(ctx context.Context, q question, now time.Time, get func(context.Context, owner.Ref) (int, error)) (int, error) {
	if is, ok := a.known[q]; ok {
		return is.replicas, is.err
	}
	kind := q.ref.GroupKind()
	if err := a.silent[kind]; err != nil {
		a.known[q] = answer{0, err, now} // otherwise each owner of the kind would delay a pass
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, longestAnswer)
	defer cancel()
	n, err := get(bounded, q.ref)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil && bounded.Err() != nil {
		a.silent[kind] = err
	}
	a.known[q] = answer{n, err, now}
	return n, err
}

// isPassing reports whether an error about an owner may pass by itself.
func isPassing(err error) bool {
	return err != nil && !errors.Is(err, owner.ErrGone) && !isUncounted(err)
}
