// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/must"
)

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

// ServerAddress is where the guest reaches the server, see Guest.Dial.
const ServerAddress = "10.0.2.100:6443"

// uplink returns the guest's interface to the server.
func uplink() Interface {
	return Interface{"52:54:00:00:02:00", netip.MustParsePrefix("10.0.2.15/24")}
}

// user returns QEMU's arguments of a network that has only the server.
func (i Interface) user(dial string) []string {
	return []string{
		"-netdev", "user,id=uplink,restrict=on,ipv6=off,guestfwd=tcp:" + ServerAddress + "-cmd:" + dial,
		"-device", "virtio-net-pci,netdev=uplink,romfile=,mac=" + i.MAC,
	}
}

// raise gives the interface its address.
func (i Interface) raise() (err error) {
	defer must.Catch(&err)
	for _, l := range must.Value(netlink.LinkList()) {
		if l.Attrs().HardwareAddr.String() != i.MAC {
			continue
		}
		ip := &net.IPNet{IP: i.Addr.Addr().AsSlice(), Mask: net.CIDRMask(i.Addr.Bits(), i.Addr.Addr().BitLen())}
		must.OK(netlink.AddrAdd(l, &netlink.Addr{IPNet: ip}))
		return netlink.LinkSetUp(l)
	}
	return fmt.Errorf("no interface has the MAC %s", i.MAC)
}

// PFs is the number of cards of SRIOV.
const PFs = 2

// PFMAC and CableMAC return the MACs of a card, numbered from 1, and of the other end of its cable.
func PFMAC(number int) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(number)} }
func CableMAC(number int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0, 0, 1, byte(number)}
}

// SRIOV returns QEMU's arguments of the cards: Intel 82576, which can have virtual functions. Each has a
// cable to an interface of the guest itself, which plugs it into a switch.
func SRIOV() []string {
	var args []string
	for n := 1; n <= PFs; n++ {
		number := strconv.Itoa(n)
		args = append(args,
			"-netdev", "hubport,id=card"+number+",hubid="+number,
			"-device", "pcie-root-port,id=port"+number+",chassis="+number+",slot="+number,
			"-device", "igb,romfile=,bus=port"+number+",netdev=card"+number+",mac="+PFMAC(n).String(),
			"-netdev", "hubport,id=cable"+number+",hubid="+number,
			"-device", "virtio-net-pci,romfile=,netdev=cable"+number+",mac="+CableMAC(n).String())
	}
	return args
}
