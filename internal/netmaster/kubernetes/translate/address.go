package translate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of pods that ask for addresses. Each is an address, or a list of them
// for the pods of a StatefulSet, which have one template.
const (
	AnnotationIPv4 = "contiv.io/ipv4"
	AnnotationIPv6 = "contiv.io/ipv6"
)

// podIndex is the label with which the controller of StatefulSets numbers pods.
const podIndex = "apps.kubernetes.io/pod-index"

// Addresses are the ones that a pod asks for by annotations; invalid = any. The Problems
// name invalid annotations: such a pod gets no endpoint.
func Addresses(pod metav1.Object) (v4, v6 netip.Addr, found []Problem) {
	for _, f := range []struct {
		name string
		four bool
		to   *netip.Addr
	}{{AnnotationIPv4, true, &v4}, {AnnotationIPv6, false, &v6}} {
		text, asked := pod.GetAnnotations()[f.name]
		if !asked {
			continue
		}
		a, err := address(pod, text, f.four)
		if err != nil {
			found = append(found, Problem{"metadata.annotations[" + f.name + "]", err.Error()})
			continue
		}
		*f.to = a
	}
	return v4, v6, found
}

func address(pod metav1.Object, text string, four bool) (netip.Addr, error) {
	list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	i := 0
	if len(list) != 1 {
		var ok bool
		if i, ok = ordinal(pod); !ok {
			return netip.Addr{}, fmt.Errorf("%q: a list of addresses is for the pods of a StatefulSet, which are numbered; this one is not: name one address", text)
		}
		if i >= len(list) {
			return netip.Addr{}, fmt.Errorf("it lists %d addresses, and this is pod %d, counted from 0: list one for each pod", len(list), i)
		}
	}
	a, err := netip.ParseAddr(list[i])
	if err != nil || a.Is4() != four || a.Is4In6() || a.Zone() != "" {
		family := map[bool]string{true: "IPv4", false: "IPv6"}[four]
		return netip.Addr{}, fmt.Errorf("%q: must be an %s address, or a list of them", list[i], family)
	}
	return a, nil
}

// ordinal is the number of a pod among those of its StatefulSet.
func ordinal(pod metav1.Object) (int, bool) {
	text, ok := pod.GetLabels()[podIndex]
	if !ok {
		i := strings.LastIndexByte(pod.GetName(), '-')
		text = pod.GetName()[i+1:]
		if i < 0 {
			return 0, false
		}
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0
}
