// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
)

// support returns a bundle with secrets and names in all places.
func support(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{documents: map[string]any{}, logs: map[string]string{
		"logs/fenceline-agent-x.log": `{"msg":"grant","namespace":"shop","pod":"gone-7","node":"db1","pool":"floor","address":"10.0.0.7"}` + "\n" +
			"dial https://me:hunter2@proxy: Bearer abc.def, pod shop/web-0.\n",
	}}
	for file, text := range map[string]string{
		"doctor": `{faults: [{object: node db1, what: "shop/web-0 is silent"}]}`,
		"nodes": `[{kind: Node, metadata: {name: db1, managedFields: [{manager: m}], labels: {
		  zone: attic, kubernetes.io/hostname: db1.example.com, kubernetes.io/os: linux, topology.kubernetes.io/zone: frankfurt-2,
		  topology.kubernetes.io/region: "2", node-role.kubernetes.io/payments: "true"}},
		  status: {images: [{names: [secret-product]}], addresses: [{type: Hostname, address: db1.example.com}, {type: InternalIP, address: 10.0.0.1}]}}]`,
		"pools": `[{kind: IPPool, metadata: {name: floor}, spec: {subnet: 10.0.0.0/24, default: true, namespaceName: [vault], multusName: [vault/ledger],
		  nodeAffinity: {matchLabels: {example.com/zone: attic}, matchExpressions: [
		  {key: topology.kubernetes.io/zone, operator: In, values: [frankfurt-2]}, {key: node-role.kubernetes.io/payments, operator: Exists}]}}}]`,
		"programs/daemonsets": `[{kind: DaemonSet, metadata: {name: fenceline-agent}, spec: {selector: {matchLabels: {
		  app.kubernetes.io/name: fenceline, app.kubernetes.io/component: agent}}}}]`,
		"events": `[{reportingController: kubelet, reason: Failed, note: "pull harbor.corp/cart, volume ledger-db", regarding: {kind: Pod, namespace: shop, name: web-0}},
		  {reportingController: fenceline-agent, note: "shop/web-0 is silent"}]`,
		"leases": `[{kind: IPLease, metadata: {name: 10.0.0.7}, spec: {state: Bound, nodeName: db1, pool: floor,
		  holder: {namespace: shop, pod: web-0, ownerName: web, interface: eth0, mac: "02:00:00:00:00:07"}}}]`,
		"programs/pods": `[{kind: Pod, metadata: {namespace: fenceline-system, name: fenceline-agent-x},
		  spec: {imagePullSecrets: [{name: robot}], containers: [{image: registry.example.com/fenceline/agent:1, env: [{name: X, value: hunter2}]}]}}]`,
		"programs/configmaps": `[{kind: ConfigMap, metadata: {namespace: default, name: fenceline-conflist}, data: {password: hunter2, a: '{"pools": ["floor"], "secret": "hunter2"}'}}]`,
	} {
		var document any
		check.OK(t, yaml.Unmarshal([]byte(text), &document))
		b.documents[file] = document
	}
	b.leaveOutSecrets()
	return b
}

// text returns all that a bundle says.
func (b *bundle) text(t *testing.T) string {
	t.Helper()
	return string(check.Value(yaml.Marshal(b.documents))(t)) + fmt.Sprint(b.logs)
}

func TestABundleLeavesSecretsOut(t *testing.T) {
	text := support(t).text(t)
	for _, secret := range []string{"hunter2", "abc.def", "secret-product", "robot", "manager"} {
		check.That(t, !strings.Contains(text, secret), "%s is in the bundle:\n%s", secret, text)
	}
	check.Says(t, text, "node db1", "shop/web-0", "pool: floor", "registry.example.com/fenceline/agent:1", "address: db1.example.com", leftOut+"proxy")
}

func TestWhatLooksLikeASecretIsLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		`"token":"hunter2","node":"db1"`:                        `"token":"(left out)","node":"db1"`,
		`login with token=hvs.hunter2 failed`:                   `login with token=(left out) failed`,
		`"token":268,"node":"db1"`:                              `"token":268,"node":"db1"`,
		`{token:268} token=269, token: 270`:                     `{token:268} token=269, token: 270`,
		`Authorization: Basic aHVudGVyMg==`:                     `Authorization: (left out)`,
		`map[Authorization:[Basic aHVudGVyMg==]]`:               `map[Authorization:[(left out)`,
		`sent basic aHVudGVyMg== twice`:                         `sent (left out) twice`,
		`api-key: hunter2 passphrase: hunter2`:                  `api-key: (left out) passphrase: (left out)`,
		`psk=hunter2 PWD=hunter2`:                               `psk=(left out) PWD=(left out)`,
		`"clientKey":"hunter2"`:                                 `"clientKey":"(left out)"`,
		`aws_secret_access_key = hunter2`:                       `aws_secret_access_key = (left out)`,
		`app --password hunter2 --db-token 'a hunter2' -v`:      `app --password (left out) --db-token '(left out)' -v`,
		`["--password", "a, hunter2", "-v"]`:                    `["--password", "(left out)", "-v"]`,
		`"password" : "x"`:                                      `"password" : "(left out)"`,
		`"password":"a \" hunter2, too","node":"db1"`:           `"password":"(left out)","node":"db1"`,
		`{"msg":"got {\"password\":\"a \\\" hunter2\"}","n":1}`: `{"msg":"got {\"password\":\"(left out)\"}","n":1}`,
		`credentials='a hunter2'.`:                              `credentials='(left out)'.`,
		`ca LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t.`:              `ca (left out).`,
		`-----BEGIN PRIVATE KEY-----\nMII`:                      `(left out)`,
	} {
		check.Equal(t, withoutSecrets(text), want, "%s", text)
	}
}

func TestABundleHasOnlyEventsThatConcernFenceline(t *testing.T) {
	var document []any
	check.OK(t, yaml.Unmarshal([]byte(`
- {note: kept-a, reportingController: fenceline-agent, regarding: {kind: Pod, namespace: shop, name: web-9}}
- {note: kept-b, reportingController: kubelet, regarding: {kind: Pod, namespace: shop, name: web-0}}
- {note: kept-c, reportingController: kubelet, regarding: {kind: Node, name: db1}}
- {note: kept-d, regarding: {apiVersion: fenceline.io/v1alpha1, kind: IPPool, name: floor}}
- {note: kept-e, regarding: {kind: DaemonSet, namespace: fenceline-system, name: fenceline-agent}}
- {note: "kept-f: plugin type=fenceline failed", reportingController: kubelet, regarding: {kind: Pod, namespace: shop, name: web-9}}
- {note: foreign-a, reportingController: kubelet, regarding: {kind: Pod, namespace: shop, name: web-9}}
- {note: foreign-b, regarding: {kind: Service, namespace: shop, name: web-0}}
- {note: foreign-c, regarding: {kind: Deployment, namespace: shop, name: fenceline-of-another}}
`), &document))
	b := support(t)
	b.documents["events"] = document
	b.leaveOutForeignEvents("fenceline-system")
	text := b.text(t)
	check.Says(t, text, "kept-a", "kept-b", "kept-c", "kept-d", "kept-e", "kept-f")
	check.That(t, !strings.Contains(text, "foreign-"), "foreign events are in the bundle:\n%s", text)
}

func TestAnAnonymousBundleHasTheSameOtherNamesEverywhere(t *testing.T) {
	b := support(t)
	b.replaceNames()
	text := b.text(t)
	for _, name := range []string{"db1", "shop", "web", "gone-7", "floor", "attic", "example.com", "vault", "ledger", "frankfurt", "payments", "harbor", "cart"} {
		check.That(t, !strings.Contains(text, name), "%s is in the bundle:\n%s", name, text)
	}
	check.Says(t, text, "object: node node-1", "what: namespace-1/pod-1 is silent", "nodeName: node-1", "kubernetes.io/hostname: host-1", "label-3: label-4",
		`"node":"node-1","pool":"pool-1","address":"10.0.0.7"`, `pools": ["pool-1"]`, "pod namespace-1/pod-1.", "namespace: fenceline-system", "default: true",
		"image: agent:1", "topology.kubernetes.io/zone: label-1", "- label-1\n", "kubernetes.io/os: linux", `topology.kubernetes.io/region: "2"`,
		"namespaceName:\n    - namespace-2", "multusName:\n    - namespace-2/networkattachmentdefinition-1", "app.kubernetes.io/component: agent", "reason: Failed", "address: 10.0.0.1", "interface: eth0", "02:00:00:00:00:07", "state: Bound")
}
