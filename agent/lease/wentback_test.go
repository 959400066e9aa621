// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestHowAHolderStandsToTheStore(t *testing.T) {
	told := func(s *spec) { s.Reason = v1alpha1.ReasonStoreWentBack }
	for rule, c := range map[string]struct {
		version string // of the lease
		spec    spec
		live    uint64
		want    Standing
	}{
		"written with the token":                            {"5000", mine, 6000, InStep},
		"edited since":                                      {"5500", mine, 6000, InStep},
		"another word of its record is none of this":        {"5500", with(mine, func(s *spec) { s.Reason = v1alpha1.ReasonPoolGone }), 6000, InStep},
		"the store went back":                               {"1010", mine, 1200, Ahead},
		"the store went back, as the lease says":            {"1020", with(mine, told), 1200, AheadAndTold},
		"the store has come as far again":                   {"1020", with(mine, told), 5000, CaughtUp},
		"the store has jumped ahead":                        {"1020", with(mine, told), 1_000_000_000, CaughtUp},
		"it did before the lease could say so":              {"1010", mine, 1_000_000_000, CaughtUp},
		"what the lease says was restored from that backup": {"5500", with(mine, told), 6000, CaughtUp},
	} {
		t.Run(rule, func(t *testing.T) {
			l := leaseOf(c.spec, "u")
			l.ResourceVersion = c.version
			check.Equal(t, StandingOf(l, 5000, c.live), c.want, "got")
		})
	}
}

func TestOnlyABoundLeaseSaysThatTheStoreWentBack(t *testing.T) {
	said, err := WentBack("why")(mine, me)
	if err != nil || said.Reason != v1alpha1.ReasonStoreWentBack || said.Message != "why" || said.State != v1alpha1.StateBound {
		t.Errorf("%+v, %v", said, err)
	}
	renewed, err := Renew(said, Owner{Now: time.Unix(9, 0)})
	if err != nil || renewed.Reason != "" || renewed.Message != "" || renewed.Holder == nil || renewed.Since.Unix() != 9 {
		t.Errorf("%+v, %v", renewed, err)
	}
	for _, transition := range []Transition{WentBack("why"), Renew} {
		_, err := transition(quarantined, me)
		check.That(t, err != nil, "a Quarantined lease is written")
	}
}
