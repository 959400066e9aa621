module github.com/fenceline/fenceline/test/thirdparty/modules/sriovcni

go 1.26.0

require (
	github.com/containernetworking/cni v0.6.0
	github.com/containernetworking/plugins v0.7.5
	github.com/intel/sriov-cni v2.1.0+incompatible
	github.com/vishvananda/netlink v1.3.1
)

require (
	github.com/coreos/go-iptables v0.8.0 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/sys v0.10.0 // indirect
)

// The module's own imports have its first path.
replace github.com/intel/sriov-cni => github.com/k8snetworkplumbingwg/sriov-cni v2.1.0+incompatible

tool github.com/intel/sriov-cni/cmd/sriov
