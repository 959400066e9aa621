// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/must"
)

// home is where the project lives.
const home = "https://github.com/fenceline/fenceline"

// notes returns the section of a version in the changelog, and whether it has a date. Before the release, it is
// the section Unreleased that begins with the version. It refuses a version that is not that of the chart.
func notes(version string, chart, changelog []byte) (_ string, dated bool, err error) {
	var c struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(chart, &c); err != nil {
		return "", false, fmt.Errorf("read Chart.yaml: %w", err)
	}
	if c.Version != version || c.AppVersion != version {
		return "", false, fmt.Errorf("VERSION is %q, and Chart.yaml has version %q and appVersion %q: make them equal", version, c.Version, c.AppVersion)
	}
	for section := range strings.SplitSeq("\n"+string(changelog), "\n## ") {
		heading, text, _ := strings.Cut(section, "\n")
		dated = regexp.MustCompile(`^\[` + regexp.QuoteMeta(version) + `\] - \d{4}-\d\d-\d\d$`).MatchString(heading)
		if text = strings.TrimSpace(text); dated || heading == "[Unreleased]" && strings.HasPrefix(text, "Version "+version+".") {
			return text + "\n", dated, nil
		}
	}
	return "", false, fmt.Errorf("CHANGELOG.md has no section \"## [%s] - YYYY-MM-DD\", and its section Unreleased does not begin with \"Version %[1]s.\"", version)
}

// loopback reports whether a registry, HOST or HOST:PORT, is of this machine.
func loopback(registry string) bool {
	host := registry
	if i := strings.LastIndex(registry, ":"); i >= 0 {
		host = registry[:i]
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// addNotes adds the notes of the release. Its links lead to the pages of this version.
func (r *release) addNotes(artifacts []artifact) {
	var text strings.Builder
	text.WriteString(regexp.MustCompile(`\]\(([^):#]+)([)#])`).ReplaceAllString(r.notes, "]("+home+"/blob/v"+r.Version+"/$1$2"))
	text.WriteString("\n### Digests\n\n")
	for _, a := range artifacts {
		fmt.Fprintf(&text, "- `%s@%s`\n", r.reference(a.name), must.Value(a.content.Digest()))
	}
	r.files["notes.md"] = []byte(text.String())
}

// licence returns the licence of an image or a program. The agent contains the programs of the kernel.
func licence(name string) string {
	if strings.HasSuffix(name, "agent") {
		return "Apache-2.0 AND (BSD-2-Clause OR GPL-2.0-only)"
	}
	return "Apache-2.0"
}

// labels describe an image or a chart in the words of OCI.
func (r *release) labels(title, description string) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": title, prefix + "description": description, prefix + "version": r.Version,
		prefix + "revision": r.commit, prefix + "created": r.time.Format("2006-01-02T15:04:05Z"),
		prefix + "source": home, prefix + "url": home, prefix + "licenses": licence(title),
	}
}
