// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// look is what Ensure returns.
type look struct {
	restored int
	err      error
}

// keeper returns a Keeper of a directory whose state is *now.
func keeper(t *testing.T, now *look) (*Directory, *events.FakeRecorder, *clocktesting.FakeClock) {
	told, clock := events.NewFakeRecorder(100), clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return NewDirectory(DirectoryOptions{
		Reporter: event.Reporter{Node: "n1", Events: told, Log: testr.New(t), Clock: clock},
		Dir:      "/var/lib/fenceline", Ensure: func() (int, error) { return now.restored, now.err },
	}), told, clock
}

func failure(errno syscall.Errno) error {
	return fmt.Errorf("keep the journal: %w", &fs.PathError{Op: "open", Path: "/var/lib/fenceline/journal/.write-1234", Err: errno})
}

func TestAFaultOfTheDirectoryIsReportedOnceWithWhatToDo(t *testing.T) {
	for _, row := range []struct {
		name  string
		looks []look
		pause time.Duration
		want  []string
	}{
		{"it is usable", []look{{}, {}}, freshFor, nil},
		{"it becomes full, and stays so", []look{{}, {0, failure(syscall.ENOSPC)}, {0, failure(syscall.ENOSPC)}}, freshFor, []string{"Warning StateUnusable"}},
		{"it is full, then read-only", []look{{0, failure(syscall.ENOSPC)}, {0, failure(syscall.EROFS)}}, freshFor, []string{"Warning StateUnusable", "Warning StateUnusable"}},
		{"it is full for long", []look{{0, failure(syscall.ENOSPC)}, {0, failure(syscall.ENOSPC)}}, tellInterval, []string{"Warning StateUnusable", "Warning StateUnusable"}},
		{"it is usable again", []look{{0, failure(syscall.EROFS)}, {}, {}}, freshFor, []string{"Warning StateUnusable", "Normal StateUsable"}},
		{"it was emptied", []look{{}, {3, nil}, {}}, freshFor, []string{"Warning StateRestored"}},
		{"two questions within that time are one look", []look{{0, failure(syscall.EIO)}, {}}, freshFor - 1, []string{"Warning StateUnusable"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var now look
			k, told, clock := keeper(t, &now)
			for _, now = range row.looks {
				err := k.Check()
				check.That(t, (err != nil) == (now.err != nil) || row.pause < freshFor, "after %v: %v", now, err)
				clock.Step(row.pause)
			}
			var got []string
			for len(told.Events) > 0 {
				got = append(got, strings.Join(strings.Fields(<-told.Events)[:2], " "))
			}
			check.Same(t, got, row.want, "events")
		})
	}
}

func TestEachFaultHasARemedyAndTheSameTextEachTime(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.ENOSPC: "df -i", syscall.EDQUOT: "quota", syscall.EROFS: "read-write", syscall.EACCES: "0700", syscall.EPERM: "lsattr",
		syscall.EIO: "damaged", syscall.ENOENT: "tries again",
	} {
		now := look{0, failure(errno)}
		k, told, _ := keeper(t, &now)
		err := k.Check()
		check.That(t, errors.Is(err, errno) && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), ".write-"), "%v: %v", errno, err)
		check.Says(t, <-told.Events, err.Error())
	}
}

func TestOnlyANewStartHelpsIfTheDirectoryItselfWasRemoved(t *testing.T) {
	now := look{0, fmt.Errorf("keep: %w", ErrDirectoryRemoved)}
	k, _, _ := keeper(t, &now)
	check.Is(t, k.Run(context.Background()), ErrDirectoryRemoved, "Run returns")
}
