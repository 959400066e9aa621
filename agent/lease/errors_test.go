// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhichErrorsMeanTryAgainLater(t *testing.T) {
	leases := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "ipleases"}
	overURL := func(err error) error { return &url.Error{Op: "Post", URL: "https://api", Err: err} }
	for rule, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                         {nil, false},
		"connection refused":               {overURL(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"connection reset":                 {overURL(syscall.ECONNRESET), true},
		"an answer that ends early":        {overURL(io.ErrUnexpectedEOF), true},
		"no answer in time":                {overURL(context.DeadlineExceeded), true},
		"our deadline":                     {context.DeadlineExceeded, true},
		"the caller went away":             {overURL(context.Canceled), false},
		"429 too many requests":            {apierrors.NewTooManyRequests("slow down", 1), true},
		"500 etcd timed out":               {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"503 service unavailable":          {apierrors.NewServiceUnavailable("starting"), true},
		"504 timeout":                      {apierrors.NewTimeoutError("slow", 1), true},
		"server timeout":                   {apierrors.NewServerTimeout(leases, "create", 1), true},
		"502 from a proxy":                 {apierrors.NewGenericServerResponse(502, "POST", leases, "x", "bad gateway", 0, true), true},
		"401 while a token is rotated":     {apierrors.NewUnauthorized("expired"), true},
		"403 forbidden":                    {apierrors.NewForbidden(leases, "x", errors.New("policy")), false},
		"404 not found":                    {apierrors.NewNotFound(leases, "x"), false},
		"409 already exists":               {apierrors.NewAlreadyExists(leases, "x"), false},
		"409 conflict":                     {apierrors.NewConflict(leases, "x", errors.New("changed")), false},
		"422 invalid":                      {apierrors.NewInvalid(schema.GroupKind{Kind: "IPLease"}, "x", nil), false},
		"a lease that is taken":            {&TakenError{&v1alpha1.IPLease{}}, false},
		"a full disk":                      {&fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}, false},
		"a link that is down":              {os.NewSyscallError("sendto", syscall.ENETDOWN), false},
		"an errno":                         {syscall.EPERM, false},
		"something else":                   {errors.New("no such transition"), false},
		"an unanswered write":              {uncertain(overURL(syscall.ECONNRESET)), true},
		"a refused write is not uncertain": {uncertain(apierrors.NewForbidden(leases, "x", nil)), false},
	} {
		t.Run(rule, func(t *testing.T) {
			check.Equal(t, IsUnavailable(c.err), c.want, "%v:", c.err)
			if c.err == nil {
				return
			}
			check.Equal(t, IsUnavailable(fmt.Errorf("create lease x: %w", c.err)), c.want, "wrapped:")
		})
	}
}

func TestATakenAddressSaysWhose(t *testing.T) {
	err := error(&TakenError{leaseOf(other, "u")})
	check.That(t, errors.Is(fmt.Errorf("create: %w", err), ErrTaken), "it is no ErrTaken")
	want := "address 10.0.0.5 is taken: Bound for pod shop/web-0 on node n2"
	check.That(t, err.Error() == want, "got  %s\nwant %s", err, want)
	got := (&TakenError{leaseOf(quarantined, "u")}).Error()
	check.That(t, strings.Contains(got, "Quarantined (PodGone)"), "got %s", got)
}

func TestTokens(t *testing.T) {
	for version, want := range map[string]uint64{"1": 1, "18446744073709551615": 1<<64 - 1, "": 0, "abc": 0, "-1": 0} {
		l := leaseOf(mine, "u")
		l.ResourceVersion = version
		got, err := Token(l)
		check.That(t, got == want && (err == nil) == (want != 0), "resourceVersion %q: %d, %v", version, got, err)
	}
}
