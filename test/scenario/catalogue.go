package scenario

// All returns every scenario, in the order of the story.
func All() []Scenario {
	all := []Scenario{
		{Name: "pods", Promise: "Pods get addresses of their own and reach each other", play: playPods},
		{Name: "conflict", Promise: "An address that a foreign host uses is not handed out, and comes back", play: playConflict},
		{Name: "dual-stack", Promise: "Every pod has an address of both families, or of none", play: playDual},
		{Name: "multus", Promise: "Every interface of a pod has an address of its own, from pools meant for it", play: playMultus},
		{Name: "latecomer", Promise: "A pod defends its address against a foreign host, and nobody gets it after the pod until that host has left", play: badDay(playLatecomer)},
		{Name: "exhausted", Promise: "Pods that find a pool full are told so, and get what others give back", play: playExhausted},
		{Name: "edited", Promise: "Whatever is done to a pool, its pods keep their addresses", play: playEdited},
		{Name: "warm", Promise: "Addresses that are kept ready are watched, and given up before a pod goes without", play: playWarm},
		{Name: "zombie", Promise: "The address of a pod on a cut-off node serves another pod, and the zombie is silent", play: badDay(playZombie)},
		{Name: "dead-agent", Promise: "The same with the agent of the cut-off node killed", play: badDay(playDeadAgent)},
		{Name: "statefulset", Promise: "A StatefulSet's pod takes its address along, and the zombie is silent", play: badDay(playStatefulSet)},
		{Name: "names", Promise: "Pods of a StatefulSet keep their addresses over restart, update and reschedule, and after a scale-in for as long as they are to", play: badDay(playNames)},
		{Name: "observe", Promise: "In mode Observe the same story has two speakers", play: playObserve},
		{Name: "deaf", Promise: "Silence that a deaf listener hears frees no address", play: badDay(playDeaf)},
		{Name: "split", Promise: "Two owners that a split underlay has made become one as soon as they can hear each other", play: badDay(playSplit)},
		{Name: "flapping", Promise: "A management network that comes and goes takes no address from a pod that stays", play: badDay(playFlapping)},
		{Name: "restarts", Promise: "Whatever part of the cluster is restarted under load, no address is doubled or lost", play: badDay(playRestarts)},
		{Name: "absent", Promise: "A node whose agent is away for a moment stays Ready, and later says what is missing; its pods notice neither", play: badDay(playAbsent)},
		{Name: "failover", Promise: "Controllers that fail over in the middle of many reclaims, or work beside each other, free each address once", play: badDay(playFailover)},
		{Name: "lossy", Promise: "Also on cables that lose frames an address has one speaker at a time", play: badDay(playLossy)},
		{Name: "frozen", Promise: "The address of a pod that is frozen in its deletion serves another pod", play: badDay(playFrozen)},
		{Name: "shim", Promise: "The address of a pod whose containerd-shim hangs serves another pod", play: badDay(playShim)},
		{Name: "stubborn", Promise: "The address of a pod that was deleted by force and lives on serves another pod", play: badDay(playStubborn)},
		{Name: "delete", Promise: "After an ordinary deletion no frame follows the lease", play: badDay(playDelete)},
		{Name: "lost", Promise: "Leases deleted by hand come back, and nobody loses a frame or gets an address twice", play: badDay(playLost)},
		{Name: "uninstall", Promise: "Fenceline is not uninstalled while leases exist, and by force leaves no lease and nothing on any node", play: playUninstall},
	}
	for i := range all {
		all[i].number = i + 1
	}
	return all
}
