// SPDX-License-Identifier: Apache-2.0

package guest

import "fmt"

// machine is what differs between guests of different processors.
type machine struct {
	qemu string
	// arguments of QEMU: the board, a processor without surprises, and the serial lines for the character devices
	// console, output and status.
	arguments []string
	// parameters of the kernel.
	parameters []string
	// output and status are the lines in the guest.
	output, status string
	// kernel returns the file below a directory that QEMU boots.
	kernel func(dir string) (string, error)
}

func machineFor(arch string) (machine, error) {
	switch arch {
	case "amd64":
		return machine{
			qemu: "qemu-system-x86_64",
			arguments: []string{"-machine", "q35", "-cpu", "qemu64,+rdrand", // of which random.trust_cpu makes the seed
				"-serial", "chardev:console", "-serial", "chardev:output", "-serial", "chardev:status"},
			parameters: []string{"console=ttyS0", "random.trust_cpu=on", "no_timer_check", "tsc=unstable"},
			output:     "/dev/ttyS1", status: "/dev/ttyS2",
			kernel: bootable,
		}, nil
	case "arm64":
		return machine{
			qemu: "qemu-system-aarch64",
			// The board itself has one line.
			arguments: []string{"-machine", "virt", "-cpu", "cortex-a57",
				"-serial", "chardev:console", "-device", "pci-serial-2x,chardev1=output,chardev2=status"},
			parameters: []string{"console=ttyAMA0", "random.trust_bootloader=on"}, // the loader is QEMU
			output:     "/dev/ttyS0", status: "/dev/ttyS1",
			kernel: findKernel,
		}, nil
	}
	return machine{}, fmt.Errorf("no guest has the architecture %q", arch)
}
