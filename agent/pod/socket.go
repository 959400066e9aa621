package pod

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
const skipStats = 1 << 3

// socket asks rtnetlink about a namespace, a tenth of the time that a
// netlink.Handle takes for it: each ADD opens one. Safe for concurrent use.
type socket struct {
	mu  sync.Mutex
	fd  int
	seq uint32
}

// openSocket opens a socket in a namespace; home is the one of the calling thread.
func openSocket(inside, home netns.NsHandle) (*socket, error) {
	runtime.LockOSThread()
	if err := netns.Set(inside); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter the network namespace: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if back := netns.Set(home); back != nil {
		// The thread stays locked, and so ends with its goroutine.
		return nil, errors.Join(fmt.Errorf("leave the network namespace: %w", back), unix.Close(fd))
	}
	runtime.UnlockOSThread()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return &socket{fd: fd}, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// link reads a link by name or, where that is empty, by index. It returns
// unix.ENODEV where there is none.
func (s *socket) link(name string, index int) (netlink.Link, error) {
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	if name != "" {
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	}
	answer, err := s.ask(request)
	if err != nil {
		return nil, err
	}
	return netlink.LinkDeserialize(nil, answer)
}

// netnsID returns the ID that the socket's namespace has for another one, -1
// where it has none.
func (s *socket) netnsID(other netns.NsHandle) (int, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNSID, 0)
	request.AddData(nl.NewRtGenMsg())
	request.AddData(nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(other))))
	answer, err := s.ask(request)
	if err != nil {
		return 0, err
	}
	attributes, err := nl.ParseRouteAttr(answer[(&nl.RtGenMsg{}).Len():])
	if err != nil {
		return 0, err
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.NETNSA_NSID && len(a.Value) == 4 {
			return int(int32(binary.NativeEndian.Uint32(a.Value))), nil
		}
	}
	return 0, errors.New("the answer holds no ID")
}

// ask returns the payload of the answer. rtnetlink has queued it when it has
// taken the question, so that nothing is waited for.
func (s *socket) ask(request *nl.NetlinkRequest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	request.Seq = s.seq
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(s.fd, request.Serialize(), 0, kernel); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	for {
		size, _, err := unix.Recvfrom(s.fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		reply := make([]byte, size)
		_, from, err := unix.Recvfrom(s.fd, reply, unix.MSG_DONTWAIT)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		sender, ok := from.(*unix.SockaddrNetlink)
		messages, err := syscall.ParseNetlinkMessage(reply)
		if err != nil {
			return nil, err
		}
		// An earlier answer that nobody took is passed over.
		if !ok || sender.Pid != nl.PidKernel || len(messages) != 1 || messages[0].Header.Seq != s.seq {
			continue
		}
		return payload(messages[0])
	}
}

// payload is what a message says, or the error that it tells of.
func payload(m syscall.NetlinkMessage) ([]byte, error) {
	if m.Header.Type != unix.NLMSG_ERROR {
		return m.Data, nil
	}
	if len(m.Data) < 4 {
		return nil, errors.New("an error without a number")
	}
	return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
}
