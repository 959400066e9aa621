// SPDX-License-Identifier: Apache-2.0

//go:build model

package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

const (
	oneSpeaker       = "P1_one_speaker"
	greaterTokenWins = "P2_greater_token_wins"
	proven           = "P3_proven"
	ackedIsFenced    = "P4_acked_is_fenced"
	notStuck         = "P5_not_stuck"
	livingPod        = "P6_living_pod"
	record           = "P7_record"
	answeredUnfenced = "P8_answered_unfenced"
	sourceIsPaused   = "P9_source_is_paused"
	mutedOnce        = "P10_muted_once"
	letGo            = "P11_let_go"
	situation        = "seen"
)

// With all rules in force no property can be violated, whatever breaks.
func TestTheProtocolIsSafe(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		defines []string
	}{
		{"while links are cut and go deaf", []string{"VERSIONS=5", "LINKS=2"}},
		{"while links are cut, and go deaf or mute", []string{"VERSIONS=4", "LINKS=2", "MUTES=1"}},
		{"while agents crash at any step", []string{"VERSIONS=6", "CRASHES=1"}},
		{"while agents crash and links are cut", []string{"VERSIONS=4", "LINKS=1", "CRASHES=2"}},
		{"while machines start anew or are imaged again", []string{"VERSIONS=5", "LINKS=1", "LIVES=1"}},
		{"while leases are deleted by hand", []string{"VERSIONS=5", "LINKS=1", "DELETIONS=1"}},
		{"while the store goes back to a backup", []string{"VERSIONS=4", "LINKS=1", "RESTORES=1"}},
		{"while claims of a stranger come in, and links are cut", []string{"VERSIONS=4", "LINKS=1", "RENEWALS=1", "STRAYS=1"}},
		{"while claims of a stranger come in, and agents crash", []string{"VERSIONS=4", "CRASHES=1", "RENEWALS=1", "STRAYS=1"}},
		{"while two claims of a stranger come in again and again", []string{"VERSIONS=4", "RENEWALS=1", "STRAYS=3"}},
		{"while the store goes back, and fenced holders renew their tokens", []string{"VERSIONS=4", "RESTORES=1", "RENEWALS=1"}},
		{"while a virtual machine migrates, and agents crash", []string{"VERSIONS=4", "CRASHES=1", "MIGRATIONS=1"}},
		{"while a virtual machine migrates, and links are cut", []string{"VERSIONS=4", "LINKS=1", "MIGRATIONS=1"}},
		{"while sandboxes die without the API server, and agents crash", []string{"VERSIONS=4", "CRASHES=1", "MOVES=2"}},
		{"while sandboxes die without the API server, agents crash, and links are cut", []string{"VERSIONS=3", "LINKS=1", "CRASHES=1", "MOVES=1"}},
		{"while sandboxes die without the API server, links are cut, and leases are deleted", []string{"VERSIONS=4", "LINKS=1", "DELETIONS=1", "MOVES=1"}},
		{"while sandboxes die without the API server, and machines start anew", []string{"VERSIONS=4", "LIVES=1", "MOVES=1"}},
		{"while sandboxes die without the API server, and the store goes back", []string{"VERSIONS=4", "RESTORES=1", "MOVES=1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := search{defines: test.defines, bits: 29, long: true}.check(t)
			t.Log(f)
			check.That(t, f.violated == "", "%s is violated by\n%s", f.violated, f.trace)
			check.That(t, f.hash >= fullHash, "hash factor %.0f: states may be left out, use more bits", f.hash)
		})
	}
}

// Each rule is needed: without it the checker finds a way to break a property.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	areNeeded(t, []rule{
		{"R2: a deaf listener's silence is Unknown", []string{"VERSIONS=4", "LINKS=1", "WITHOUT_R2"}, proven},
		{"R2: a canary answers, or the evidence of hearing is too old", []string{"VERSIONS=4", "LINKS=1", "WITHOUT_CANARY"}, proven},
		{"R2: a canary that is only heard does not show that it hears", []string{"VERSIONS=4", "LINKS=1", "MUTES=1", "CANARY_SPEAKS"}, proven},
		{"R2: a canary is no host of the verifier's own node", []string{"VERSIONS=4", "LINKS=1", "MUTES=1", "CANARY_AT_HOME"}, proven},
		{"R3: holders repeat their claims", []string{"VERSIONS=4", "LINKS=1", "WITHOUT_R3"}, oneSpeaker},
		{"R4: from free, a claim follows silence", []string{"VERSIONS=4", "DELETIONS=1", "WITHOUT_R4"}, livingPod},
		{"R6: fence before free", []string{"VERSIONS=4", "WITHOUT_R6"}, proven},
		{"R7: a GET by name decides", []string{"VERSIONS=4", "LINKS=1", "WITHOUT_R7_GET"}, record},
		{"R7: what was fenced here is not created again", []string{"VERSIONS=6", "LINKS=1", "DELETIONS=2", "WITHOUT_R7_FENCED"}, ackedIsFenced},
		{"R8: another session's holder is verified", []string{"VERSIONS=4", "LIVES=1", "WITHOUT_R8"}, proven},
		{"R9: the greatest claim is never lowered", []string{"VERSIONS=5", "CRASHES=1", "WITHOUT_R9"}, ackedIsFenced},
		{"only a newer claim fences", []string{"VERSIONS=4", "LINKS=1", "ANY_CLAIM_FENCES"}, greaterTokenWins},
		{"a newer claim fences", []string{"VERSIONS=2", "NO_CLAIM_FENCES"}, notStuck},
		{"R10: confirmed before answered", []string{"VERSIONS=4", "RESTORES=1", "WITHOUT_R10"}, answeredUnfenced},
		{"R5: an ADD that stalled reads its lease again before its answer", []string{"VERSIONS=4", "STALLED_ADD"}, proven},
		{"R1: a renewed holder speaks once nobody else is proven to", []string{"VERSIONS=4", "RESTORES=1", "RENEWALS=1", "RENEWS_BLINDLY"}, ackedIsFenced},
		{"R1: a renewed holder reads its lease again after the proof", []string{"VERSIONS=5", "LINKS=1", "RENEWALS=1", "STRAYS=1", "RENEWS_UNREAD"}, record},
		{"R1: a sighting leads to no parent that the pool does not name", []string{"VERSIONS=4", "SIGHTING_OVERRULES"}, proven},
		{"R9: a token stays disproved after the next one", []string{"VERSIONS=4", "RENEWALS=1", "STRAYS=3", "ONE_DISPROVED"}, mutedOnce},
		{"R9: a disproved token disproves no lesser one", []string{"VERSIONS=5", "LINKS=1", "RENEWALS=1", "STRAYS=1", "DISPROVES_LESSER"}, notStuck},
		{"R15: the target of a migration is mute", []string{"VERSIONS=4", "MIGRATIONS=1", "TARGET_SPEAKS"}, oneSpeaker},
		{"R15: the source hands over once it is paused", []string{"VERSIONS=4", "MIGRATIONS=1", "HANDS_OVER_EARLY"}, sourceIsPaused},
		{"R15: the target binds the lease as it was proven", []string{"VERSIONS=5", "MIGRATIONS=1", "TAKES_TURN_UNREAD"}, proven},
		{"a verifier writes whose slot it killed, and nothing moves from there", []string{"VERSIONS=4", "LINKS=1", "MOVES=1", "TAKES_UNWRITTEN"}, ackedIsFenced},
		{"a move locks the lease against a verifier of its own node", []string{"VERSIONS=4", "LINKS=1", "MOVES=1", "MOVES_UNLOCKED"}, ackedIsFenced},
		{"R6: a move needs an entry that nobody releases", []string{"VERSIONS=4", "MOVES=1", "MOVES_RELEASED"}, ackedIsFenced},
		{"R8: a move needs an entry of this session", []string{"VERSIONS=4", "LIVES=1", "MOVES=1", "MOVES_AFTER_BOOT"}, ackedIsFenced},
		{"a move needs an entry of the same pod", []string{"VERSIONS=4", "MOVES=1", "MOVES_TO_OTHER_POD"}, livingPod},
		{"R6: a move kills the old slot", []string{"VERSIONS=4", "MOVES=1", "SPARES_OLD"}, proven},
		{"R9: a move raises no token", []string{"VERSIONS=4", "MOVES=1", "RAISES_TOKEN"}, notStuck},
		{"R9: a move keeps the claims that the kernel heard for the dead slot", []string{"VERSIONS=4", "MOVES=1", "FORGETS_DEAD"}, ackedIsFenced},
		{"R10: a move is confirmed before it is answered", []string{"VERSIONS=4", "MOVES=1", "MOVES_UNCONFIRMED"}, answeredUnfenced},
		{"a move is in the journal before it is answered", []string{"VERSIONS=4", "CRASHES=1", "MOVES=1", "ANSWERS_UNWRITTEN"}, livingPod},
		{"after a crash, the newer of two sandboxes has the address", []string{"VERSIONS=4", "CRASHES=1", "MOVES=1", "OLD_ENTRY_WINS"}, proven},
		{"the DEL of the old sandbox frees nothing after a move", []string{"VERSIONS=4", "MOVES=1", "OLD_DEL_FREES"}, proven},
		{"R7: a late write takes no lease from another holder", []string{"VERSIONS=4", "MOVES=1", "LATE_OVERWRITES"}, proven},
		{"after a late write, the fence is read once more before the install", []string{"VERSIONS=4", "RESTORES=1", "MOVES=1", "LATE_ONE_LOOK"}, ackedIsFenced},
		{"a DEL before the late write frees the lease of the old sandbox", []string{"VERSIONS=4", "MOVES=1", "KEEPS_LATE"}, letGo},
		{"only the holder that the claim names acknowledges", []string{"VERSIONS=5", "LINKS=2", "ANY_ACK"}, proven},
		{"a restored store gives no version again", []string{"VERSIONS=4", "LINKS=1", "RESTORES=1", "WITHOUT_BUMP"}, ackedIsFenced},
		{"a verifier ends its own node's ADD that has not installed", []string{"VERSIONS=4", "SPARES_INTENT", "STALLED_ADD"}, ackedIsFenced},
		{"created again, an address is asked for claims once more before the install", []string{"VERSIONS=6", "LINKS=1", "DELETIONS=2", "ONE_LOOK"}, ackedIsFenced},
	})
}

// Where the code is weaker than the protocol that is proved above. A row goes
// from here to the rules when the code follows.
func TestOpenFindings(t *testing.T) {
	t.Parallel()
	areNeeded(t, []rule{
		{"a verifier claims for a predecessor that has never probed", []string{"VERSIONS=5", "DELETIONS=1", "CLAIMED_UNPROBED"}, livingPod},
	})
}

// rule is what violates an assertion if it is left out.
type rule struct {
	name     string
	defines  []string // leave it out
	violated string
}

func areNeeded(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			expect(t, r.defines, r.violated)
		})
	}
}

// A model in which nothing happens is safe too: each situation is reached.
func TestEverySituationIsReachable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		seek    string
		defines []string
	}{
		{"a claim fences", "FENCE_BY_CLAIM", nil},
		{"an ack is heard", "ACK_HEARD", nil},
		{"an ack is lost, and silence decides", "ACK_LOST", nil},
		{"a holder behind a cut link is taken for silent", "SILENT_BET", []string{"LINKS=1"}},
		{"a link heals, and both owners live", "HEALED_WITH_TWO", []string{"LINKS=1"}},
		{"a holder defends its address", "DEFENCE", nil},
		{"a newer claim comes before an ADD is confirmed", "NOT_CONFIRMED", nil},
		{"a verifier frees", "FREED_BY_VERIFIER", nil},
		{"another verifier is asked", "REASSIGNED", nil},
		{"an ADD gets a free address", "ADD_FROM_FREE", nil},
		{"an ADD meets a living pod without a lease", "ADD_ANSWERED", []string{"DELETIONS=1"}},
		{"an ADD takes a quarantined address over", "ADD_TAKEN_OVER", nil},
		{"a holder yields to another", "YIELDED", []string{"LINKS=1"}},
		{"a lost lease is created again", "LEASE_RECREATED", []string{"DELETIONS=1"}},
		{"a machine meets a lease of its earlier life", "SESSION_ENDED", []string{"LIVES=1"}},
		{"a target of a migration gets the address", "MIGRATED", []string{"MIGRATIONS=1"}},
		{"a holder that a stranger fenced speaks again", "RENEWED", []string{"RENEWALS=1", "STRAYS=1"}},
		{"a crash after a renewal was written", "CRASHED+RENEWAL_WRITTEN", []string{"RENEWALS=1", "STRAYS=1", "CRASHES=1"}},
		{"a crash before a renewed holder speaks", "CRASHED+RENEWAL_PROVEN", []string{"RENEWALS=1", "STRAYS=1", "CRASHES=1"}},
		{"a crash while a renewal is verified", "CRASHED+RENEWS", []string{"RENEWALS=1", "STRAYS=1", "CRASHES=1"}},
		{"the store goes back to a backup", "STORE_WENT_BACK", []string{"RESTORES=1"}},
		{"an address moves on to the next sandbox", "MOVED_ON", []string{"MOVES=1"}},
		{"a newer claim comes during a move", "NOT_MOVED", []string{"MOVES=1"}},
		{"a late write names the next sandbox", "WRITTEN_LATE", []string{"MOVES=1"}},
		{"an address is quarantined after it has moved", "MOVED_QUARANTINED", []string{"MOVES=1"}},
		{"a crash while both sandboxes are in the journal", "CRASHED+MOVED", []string{"MOVES=1", "CRASHES=1"}},
		{"a crash after the old slot was killed", "CRASHED+MOVE_KILLED", []string{"MOVES=1", "CRASHES=1"}},
		{"a crash after the new slot has the token", "CRASHED+MOVE_INSTALLED", []string{"MOVES=1", "CRASHES=1"}},
		{"a crash before a move is confirmed", "CRASHED+MOVE_CLAIMED", []string{"MOVES=1", "CRASHES=1"}},
		{"a crash after a late write", "CRASHED+LATE_WRITTEN", []string{"MOVES=1", "CRASHES=1"}},
		{"a crash after the lease was created", "CRASHED+CREATED", []string{"CRASHES=1"}},
		{"a crash after the claim", "CRASHED+CLAIMED", []string{"CRASHES=1"}},
		{"a crash after a take-over was written", "CRASHED+TAKEN", []string{"CRASHES=1"}},
		{"a crash while a take-over is verified", "CRASHED+PROVES", []string{"CRASHES=1"}},
		{"a crash before a take-over is confirmed", "CRASHED+PROVEN", []string{"CRASHES=1"}},
		{"a crash of a holder", "CRASHED+HOLDS", []string{"CRASHES=1"}},
		{"a crash before a lost lease is created again", "CRASHED+RECREATES", []string{"CRASHES=1", "DELETIONS=1"}},
		{"a crash after a lost lease was created again", "CRASHED+RECREATED", []string{"CRASHES=1", "DELETIONS=1"}},
		{"a crash between fence and free", "CRASHED+RELEASES", []string{"CRASHES=1"}},
		{"a crash of a verifier without a pod", "CRASHED+IDLE", []string{"CRASHES=1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			versions := "VERSIONS=5"
			if slices.Contains(test.defines, "MOVES=1") {
				versions = "VERSIONS=4" // a search for a crash takes 17 s otherwise
			}
			expect(t, append(test.defines, versions, "SEEK="+test.seek), situation)
		})
	}
}

// expect wants the checker to violate exactly this property.
func expect(t *testing.T, defines []string, violated string) {
	t.Helper()
	f := search{defines: defines, bits: 27}.check(t)
	t.Logf("%s found: %s", violated, f)
	switch f.violated {
	case violated:
	case "":
		t.Errorf("nothing is violated, want %s", violated)
	default:
		t.Errorf("%s is violated, want %s, by\n%s", f.violated, violated, f.trace)
	}
}

const (
	// mostDepth is more steps than any run of the model has.
	mostDepth = 1000
	// fullHash is the least ratio of bits to states at which a search in a bit
	// table counts as complete: spin's own advice.
	fullHash = 100.0
	// patience bounds one check. The largest takes a minute of an idle core.
	patience = 15 * time.Minute
)

// search is one call of the model checker.
type search struct {
	// defines are the bounds and the rules left out, as -D options without the -D.
	defines []string
	// bits is the binary logarithm of the size of the bit table of states.
	bits int
	// long is a search that is worth the time of an optimizing compiler.
	long bool
}

// found is what the checker says.
type found struct {
	// violated is the name of the property in the failed assertion, empty when none failed.
	violated string
	states   uint64
	depth    int
	hash     float64
	elapsed  time.Duration
	// trace is the way to the violation.
	trace string
}

func (f found) String() string {
	return fmt.Sprintf("%d states, %d steps deep, %s, hash factor %.0f", f.states, f.depth, f.elapsed.Round(time.Millisecond), f.hash)
}

// check builds the checker of a search and runs it.
func (s search) check(t *testing.T) found {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	check.OK(t, os.CopyFS(dir, os.DirFS(".")))
	options := make([]string, 0, len(s.defines))
	for _, d := range s.defines {
		options = append(options, "-D"+d)
	}
	started := time.Now()
	command(ctx, t, dir, "spin", append(append([]string{"-a"}, options...), "fenceline.pml")...)
	// No partial order reduction: every step may depend on every other.
	compiler := "tcc" // 0.04 s, gcc -O0 1.2 s
	if s.long {
		compiler = "gcc" // 3.6 s, and the search takes 0.4 times as long
	}
	command(ctx, t, dir, compiler, "-w", "-O1", "-DSAFETY", "-DNOREDUCE", "-DBITSTATE", "-o", "pan", "pan.c")
	out := command(ctx, t, dir, "./pan", fmt.Sprintf("-w%d", s.bits), fmt.Sprintf("-m%d", mostDepth))
	f, err := read(out)
	check.Must(t, err == nil, "%v in what the checker says:\n%s", err, out)
	f.elapsed = time.Since(started)
	if f.violated != "" {
		f.trace = trace(command(ctx, t, dir, "spin", append(append([]string{"-t", "-p", "-g"}, options...), "fenceline.pml")...))
	}
	return f
}

func command(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	check.Must(t, !errors.Is(err, exec.ErrNotFound), "%s is missing: run `make packages` as root, or apt-get install spin tcc gcc libc6-dev", name)
	if err != nil || strings.Contains(string(out), "Error: ") && filepath.Base(name) == "spin" && args[0] == "-a" {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// read takes the checker's own summary apart.
func read(out string) (found, error) {
	var f found
	number := func(pattern string) (float64, error) {
		m := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("no %q", pattern)
		}
		return strconv.ParseFloat(m[1], 64)
	}
	if strings.Contains(out, "max search depth too small") {
		return f, fmt.Errorf("runs longer than %d steps", mostDepth)
	}
	states, err := number(`([\d.e+]+) states, stored`)
	if err != nil {
		return f, err
	}
	depth, err := number(`depth reached (\d+)`)
	if err != nil {
		return f, err
	}
	if f.hash, err = number(`hash factor: ([\d.e+]+)`); err != nil {
		return f, err
	}
	wrong, err := number(`errors: (\d+)`)
	if err != nil {
		return f, err
	}
	f.states, f.depth = uint64(states), int(depth)
	if wrong > 0 {
		name := regexp.MustCompile(`assertion violated \(*(\w+)`).FindStringSubmatch(out)
		if name == nil {
			return f, errors.New("an error that is no assertion")
		}
		f.violated = name[1]
	}
	return f, nil
}

var (
	stepLine  = regexp.MustCompile(`^\s*(\d+):\s+proc\s+\d+ \((\w+):\d+\) (\S+:\d+)`)
	valueLine = regexp.MustCompile(`^\s+(\w+(?:\[\d\])?) = (\d+)$`)
	scratch   = regexp.MustCompile(`^(said|luck|before|other|count|best|seen|P\d_\w+)`)
)

// trace shortens spin's account of a run to one line for each step: who, where
// in the model, and what is different after it.
func trace(account string) string {
	var b strings.Builder
	values := map[string]string{}
	step, changes := "", []string(nil)
	flush := func() {
		if len(changes) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", step, strings.Join(changes, ", "))
		}
		changes = nil
	}
	for line := range strings.Lines(account) {
		line = strings.TrimRight(line, "\n")
		if m := stepLine.FindStringSubmatch(line); m != nil {
			if name := m[1] + " " + m[2]; !strings.HasPrefix(step, name+" ") {
				flush()
				step = name + " " + m[3]
			}
			continue
		}
		if strings.HasPrefix(line, "#processes") {
			break // the final state, which the steps have told
		}
		m := valueLine.FindStringSubmatch(line)
		if m == nil || scratch.MatchString(m[1]) || values[m[1]] == m[2] {
			continue
		}
		values[m[1]] = m[2]
		changes = append(changes, m[1]+"="+m[2])
	}
	flush()
	return b.String()
}
