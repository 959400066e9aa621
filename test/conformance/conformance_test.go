// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// report has a case of each kind, as Ginkgo writes them.
const report = `[{"SpecReports": [
	{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
	{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "resolves", "State": "passed", "RunTime": 1500000000},
	{"ContainerHierarchyTexts": ["[sig-network] Services", "with a port"], "LeafNodeType": "It", "LeafNodeText": "answers", "State": "failed",
	 "RunTime": 61000000000, "Failure": {"Message": "no answer:\n a | b"}},
	{"ContainerHierarchyTexts": ["[sig-network] Windows"], "LeafNodeType": "It", "LeafNodeText": "works", "State": "skipped", "Failure": {"Message": "not on Linux"}},
	{"ContainerHierarchyTexts": ["[sig-storage] Disks"], "LeafNodeType": "It", "LeafNodeText": "spin", "State": "skipped"}
]}]`

func outcomes(t *testing.T) []Outcome {
	t.Helper()
	got := check.Value(parseReport([]byte(report)))(t)
	return got
}

func TestAReportHasTheCasesThatWereChosen(t *testing.T) {
	want := []Outcome{
		{Case: "[sig-network] DNS resolves", State: "passed", Took: 1500 * time.Millisecond},
		{Case: "[sig-network] Services with a port answers", State: "failed", Took: 61 * time.Second, Message: "no answer:\n a | b"},
		{Case: "[sig-network] Windows works", State: "skipped", Message: "not on Linux"},
	}
	check.Same(t, outcomes(t), want, "the value")
}

func TestAFailureOutsideOfTheCasesIsAnError(t *testing.T) {
	data := strings.Replace(report, `"SynchronizedBeforeSuite", "State": "passed"`,
		`"SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "no node is ready"}`, 1)
	_, err := parseReport([]byte(data))
	check.That(t, err != nil && strings.Contains(err.Error(), "no node is ready"), "got %v", err)
}

func TestEveryCaseHasARow(t *testing.T) {
	const forgotten = "[sig-network] Proxy was never started"
	cases := []string{forgotten, "[sig-network] Windows works", "[sig-network] Services with a port answers", "[sig-network] DNS resolves"}
	table := Account(cases, outcomes(t))
	var got []string
	for _, row := range table {
		got = append(got, row.State+" "+row.Case)
	}
	want := []string{"passed [sig-network] DNS resolves", "no result " + forgotten,
		"failed [sig-network] Services with a port answers", "skipped [sig-network] Windows works"}
	check.List(t, got, want, "got")
	text := table.String()
	for _, line := range []string{
		"| [sig-network] DNS resolves | passed | 1.5 |",
		`| [sig-network] Services with a port answers | failed: no answer: a \| b | 61.0 |`,
		"| [sig-network] Proxy was never started | no result: the run ended before it | 0.0 |",
		"4 cases, 1 passed",
	} {
		check.That(t, strings.Contains(text, line+"\n"), "no line %q in\n%s", line, text)
	}
}

func TestATableIsGoodOnlyIfEveryCasePassed(t *testing.T) {
	all := outcomes(t)
	check.Is(t, Account([]string{all[0].Case}, all).Err(), nil, "a case that passed:")
	for _, name := range []string{all[1].Case, all[2].Case, "[sig-network] Proxy was never started"} {
		err := Account([]string{all[0].Case, name}, all).Err()
		check.That(t, err != nil && strings.Contains(err.Error(), name), "%s: got %v", name, err)
	}
}

func TestAnImageIsFoundWithAllItsTags(t *testing.T) {
	names := []string{"example.test/e2e/agnhost:2.6", prefix + "/agnhost:2.55", prefix + "/agnhost:2.63.0", prefix + "/agnhost-more:1"}
	got, want := named(names, "agnhost"), names[1:3]
	check.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}
