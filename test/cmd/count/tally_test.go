// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stream  string
		want    counts
		printed string // part of what is printed
		hidden  string // not printed
	}{{
		name: "passed and failed tests are counted, and only the failed one's output is printed",
		stream: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"the reason\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "the reason", hidden: "quiet",
	}, {
		name: "a table counts as its rows",
		stream: `{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/one"}
{"Action":"pass","Package":"p","Test":"TestT/one"}
{"Action":"run","Package":"p","Test":"TestT/two"}
{"Action":"fail","Package":"p","Test":"TestT/two"}
{"Action":"fail","Package":"p","Test":"TestT"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "TestT/two",
	}, {
		name: "a table that fails beside its rows is a failure",
		stream: `{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/one"}
{"Action":"pass","Package":"p","Test":"TestT/one"}
{"Action":"fail","Package":"p","Test":"TestT"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "FAIL TestT",
	}, {
		name: "a skipped test is a failure",
		stream: `{"Action":"run","Package":"p","Test":"TestS"}
{"Action":"output","Package":"p","Test":"TestS","Output":"no root\n"}
{"Action":"skip","Package":"p","Test":"TestS"}
{"Action":"pass","Package":"p"}`,
		want: counts{0, 1}, printed: "no root",
	}, {
		name: "a package that does not build is a failure and its compiler is heard",
		stream: `{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p"}`,
		want: counts{0, 1}, printed: "undefined: x",
	}, {
		name: "a crash is a failure and shows what was under way",
		stream: `{"Action":"run","Package":"p","Test":"TestHang"}
{"Action":"output","Package":"p","Test":"TestHang","Output":"panic: timed out\n"}
{"Action":"fail","Package":"p"}`,
		want: counts{0, 1}, printed: "panic: timed out",
	}, {
		name: "a benchmark has passed when its package has",
		stream: `{"Action":"run","Package":"p","Test":"BenchmarkB"}
{"Action":"run","Package":"p","Test":"BenchmarkB/sub"}
{"Action":"pass","Package":"p"}`,
		want: counts{1, 0},
	}, {
		name:   "a package without tests counts nothing",
		stream: `{"Action":"skip","Package":"p"}`,
		want:   counts{0, 0},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			got, err := tally(strings.NewReader(tc.stream+"\n"), &out, false, func(string) {})
			check.That(t, err == nil && got == tc.want, "got %v, %v; want %v", got, err, tc.want)
			if !strings.Contains(out.String(), tc.printed) {
				t.Errorf("%q is not in what was printed:\n%s", tc.printed, out.String())
			}
			check.That(t, tc.hidden == "" || !strings.Contains(out.String(), tc.hidden), "%q was printed", tc.hidden)
		})
	}
}
