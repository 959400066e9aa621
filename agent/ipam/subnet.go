package ipam

// SubnetPools makes pools of the subnets (IPSubnet) that a pod names.
type SubnetPools interface {
	// Pools returns the names of the pools made of the subnets for the pod. Its
	// error is told as one of the annotation that names the subnets.
	Pools(pod Pod, subnets []string, ipv6 bool) ([]string, error)
}

const (
	subnetsForm = `[{"interface": "eth0", "ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}]`
	subnetForm  = `{"ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}`
)

// subnetPools reads the annotations subnets and subnet. A pod that asks for a
// subnet must not fall through to some pool where there is none.
func subnetPools(req Request, _ said) (named, error) {
	entries, each, err := readInterfaces(req, annotationSubnets)
	if err != nil {
		return named{}, err
	}
	all, ok := find(req.Pod.describe(), req.Pod.Annotations, subnetForm, annotationSubnet)
	const unavailable = "IPSubnet is not available in this version: name pools with the annotation ippool or ippools"
	switch {
	case req.Subnets == nil && entries != nil:
		return named{}, each.wrong(unavailable)
	case req.Subnets == nil && ok:
		return named{}, all.wrong(unavailable)
	}
	n, err := namedFor(req, each, entries)
	if err == nil && n.empty() && ok {
		n, err = namedForAll(all)
	}
	if err != nil || n.empty() {
		return named{}, err
	}
	if n.v4, err = req.pools(n.at4, n.v4, false); err != nil {
		return named{}, err
	}
	n.v6, err = req.pools(n.at6, n.v6, true)
	return n, err
}

// pools asks for the pools of one family.
func (r Request) pools(at *annotation, subnets []string, ipv6 bool) ([]string, error) {
	if len(subnets) == 0 {
		return nil, nil
	}
	pools, err := r.Subnets.Pools(r.Pod, subnets, ipv6)
	if err != nil {
		return nil, at.wrong("%w", err)
	}
	if len(pools) == 0 {
		return nil, at.wrong("no pool is made of subnets %v", subnets)
	}
	return pools, nil
}
