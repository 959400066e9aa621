package controlplane

// StartControllerManager starts kube-controller-manager where Start has left it
// out; Stop ends it.
func (p *ControlPlane) StartControllerManager() error {
	return p.start(controllerManager, p.Config.KubernetesDir, p.Config.controllerManagerArguments())
}
