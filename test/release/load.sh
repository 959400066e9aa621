#!/bin/sh
# Loads the images beside this script, on a node or into a registry:
#
#	./load.sh                        a node, as root: by ctr (containerd), or by skopeo (CRI-O)
#	CTR="k3s ctr" ./load.sh          a node of k3s
#	./load.sh registry.example.com   a registry: by skopeo, which knows its password; the bundle "all"
set -eu
cd "$(dirname "$0")"

fail() {
	echo "load.sh: $*" >&2
	exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }
# run ends the script at the first failure, also inside a loop.
run() { "$@" || fail "this failed: $*"; }

if [ $# -gt 0 ]; then
	has skopeo || fail "a registry needs skopeo"
	while read -r name version _ digest; do
		run skopeo copy --all --preserve-digests "oci:images:${name##*/}" "docker://$1/$name:$version" </dev/null
		echo "$1/$name:$version@$digest"
	done <images.txt
	exit
fi

ctr=${CTR:-ctr}
if has "${ctr%% *}"; then
	ctr="$ctr --namespace=k8s.io images"
	tar -cf - -C images . | run $ctr import - || fail "the import failed"
	# The chart names the images by their digests.
	while read -r _ _ full digest; do
		run $ctr tag --force "$full" "${full%:*}@$digest" </dev/null
	done <images.txt
elif has skopeo; then
	while read -r name _ full _; do
		run skopeo copy "oci:images:${name##*/}" "containers-storage:$full" </dev/null
	done <images.txt
else
	fail "this node has neither $ctr nor skopeo: set CTR, such as CTR=\"k3s ctr\""
fi
# The runtime itself says that it has them.
while read -r _ _ full digest; do
	if has crictl; then
		run crictl inspecti --quiet "${full%:*}@$digest" </dev/null >/dev/null
	fi
	echo "$full@$digest"
done <images.txt
