// SPDX-License-Identifier: Apache-2.0

package interrupted

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestACallIsRepeatedWhileItIsInterruptedAndOnlyThen(t *testing.T) {
	for _, last := range []error{nil, syscall.EIO, syscall.EAGAIN} {
		answers := []error{syscall.EINTR, fmt.Errorf("drain: %w", syscall.EINTR), last, errors.New("once too often")}
		err := Repeat(func() error {
			next := answers[0]
			answers = answers[1:]
			return next
		})
		check.That(t, errors.Is(err, last) && len(answers) == 1, "got %v with %d answers left, want %v with 1", err, len(answers), last)
	}
}
