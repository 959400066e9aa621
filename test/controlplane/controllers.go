// SPDX-License-Identifier: Apache-2.0

package controlplane

import "context"

// StartControllerManager starts kube-controller-manager where Start has left it
// out; Stop ends it.
func (p *ControlPlane) StartControllerManager() error {
	return p.start(controllerManager, p.Config.KubernetesDir, p.Config.controllerManagerArguments())
}

// StopControllerManager ends kube-controller-manager; the API server runs on.
func (p *ControlPlane) StopControllerManager(ctx context.Context) error {
	return p.stop(ctx, controllerManager)
}
