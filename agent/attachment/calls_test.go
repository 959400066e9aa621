// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func key(container string) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: container, Interface: "eth0"}
}

func TestACallWaitsForTheLockOfItsAttachmentOnly(t *testing.T) {
	j := open(t, t.TempDir())
	a, b := key("aaa"), key("bbb")
	unlock := j.Calls.Lock(a)
	j.Calls.Lock(b)()
	j.Calls.LockLease("aaa")()
	_, ok := j.Calls.TryLock(a)
	check.That(t, !ok, "two calls have the lock of one attachment")
	locked := make(chan func())
	go func() { locked <- j.Calls.Lock(a) }()
	unlock()
	check.Receive(t, time.Minute, "the lock", locked)()
	unlock, ok = j.Calls.TryLock(a)
	check.Must(t, ok, "nobody has the lock")
	unlock()
	check.That(t, len(j.Calls.locks) == 0, "left: %v", j.Calls.locks)
}

func TestOnlyAnADDUnderWayIsOvertaken(t *testing.T) {
	j := open(t, t.TempDir())
	a := key("aaa")
	j.Calls.Overtake(a)
	check.That(t, !j.Calls.isAdding(), "a kill counts as an ADD")
	j.Calls.BeginADD(a)
	check.That(t, !j.Calls.IsOvertaken(a), "an earlier kill counts")
	j.Calls.Overtake(a)
	check.That(t, j.Calls.IsOvertaken(a) && !j.Calls.IsOvertaken(key("bbb")), "it is not overtaken, or another one is")
	j.Calls.BeginADD(a)
	check.That(t, !j.Calls.IsOvertaken(a), "the undo of an earlier ADD counts")
	j.Calls.Overtake(a)
	j.Calls.EndADD(a)
	check.That(t, !j.Calls.IsOvertaken(a) && len(j.Calls.adds) == 0, "an ADD that has ended is overtaken")
}
