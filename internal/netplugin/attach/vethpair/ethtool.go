package vethpair

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct {
	cmd  uint32
	data uint32
}

// ifreqData is struct ifreq of linux/if.h with ifr_data.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is larger than a pointer
}

// setTxChecksum switches transmit checksum offload of an interface in the
// namespace of the calling thread; segmentation offload follows it.
func setTxChecksum(ifName string, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set checksum offload of %s: %w", ifName, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	value := &ethtoolValue{cmd: unix.ETHTOOL_STXCSUM}
	if on {
		value.data = 1
	}
	req := &ifreqData{data: unsafe.Pointer(value)}
	if len(ifName) >= len(req.name) {
		return fmt.Errorf("set checksum offload of %s: the name is too long", ifName)
	}
	copy(req.name[:], ifName)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(req)))
	if errno != 0 && !errors.Is(errno, unix.EOPNOTSUPP) {
		return fmt.Errorf("set checksum offload of %s: %w", ifName, errno)
	}
	return nil
}
