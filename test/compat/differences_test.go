package compat

// differences tells, by number of the exchange, where this server answers
// otherwise than 1.x did, and why.
var differences = byNumber([]difference{
	{"1.x knew paths with a trailing slash only, no HEAD and no /healthz (known fault 29)", []int{28, 71, 72, 86}},
	{"what follows the JSON object is refused", []int{81}},
	{"VLAN 4095 is reserved (IEEE 802.1Q)", []int{112}},
	{"an empty field of global leaves the setting as it is", []int{115, 126}},
	{"putting an object as it is changes nothing and succeeds", []int{159, 239, 420}},
	{"a default network must exist (known fault 27)", []int{161}},
	{"IPv6-only networks exist (known fault 20)", []int{224}},
	{"a subnet of one address is one (known fault 22)", []int{250}},
	{"networks cannot have loopback or multicast addresses (known fault 22)", []int{264, 265}},
	{"a gateway is inside its subnet and not its network or broadcast address (known faults 20 and 22)", []int{270, 271, 274}},
	{"1.x echoed the request, with empty links and with what it ignored (known fault 14)", []int{358, 363, 434, 435, 445, 446, 447, 448}},
	{"a rule names one kind of peer at most (design.md, Domain)", []int{379, 385}},
	{"protocols are 0 to 255, ports 0 to 65535, and only tcp, udp and sctp have any (known fault 25)", []int{394, 397, 398, 399}},
	{"an address that 1.x did not understand, and silently ignored, is refused (known fault 25)", []int{409}},
	{"rules take IPv6 addresses (known fault 25)", []int{411}},
	{"a group that a rule names cannot be deleted (known fault 13)", []int{430}},
	{"an address that somebody has is not given again (known fault 16)", []int{612, 655}},
	{"gateway, network and broadcast address are nobody's, and addresses lie inside the subnet (known faults 17 and 20)", []int{613, 615, 616, 630, 636, 646}},
	{"what is not allocated cannot be released (known fault 17)", []int{635, 643}},
	{"an endpoint has an id (known fault 23)", []int{653}},
	{"addresses lie inside the group's pool and the network's range (known fault 19)", []int{659, 749}},
	{"a group's endpoints are on its network (known fault 23)", []int{664}},
	{"1.x matched parts of ids, names and containers (known fault 30); what is ambiguous is refused", []int{667}},
	{"events are start and die; a container that nobody has is not found", []int{683, 689}},
	{"networks of a tenant do not overlap, ranges included", []int{695}},
	{"the infrastructure does not change under networks (known fault 27)", []int{705}},
	{"what a runtime does not tell again is kept, and a container that has ended has no labels", []int{708, 710}},
	{"1.x said nothing about what a clean-up had done, or not (known fault 31)", []int{726, 727, 728, 729, 730}},
	{"the settings stay while networks use them, and deleting them means the defaults (known fault 8)", []int{805, 806, 807, 808, 809, 810}},
	{"endpoint ids hold no slash (known fault 5)", []int{818, 821}},

	// Not differences by themselves: an object is there, or not, because of one
	// of the above, or of a kind that this version does not have.
	{"follows from another difference", []int{
		101, 122, 163, 171, 251, 268, 288, 290, 292, 297, 298, 299, 300, 315,
		316, 317, 318, 328, 359, 360, 427, 428, 429, 431, 671, 673, 674, 675,
		694, 696, 697, 699, 713, 714, 715, 720, 722, 779, 780, 784, 824, 826,
		827, 828,
	}},
})

type difference struct {
	why string
	at  []int
}

func byNumber(ds []difference) map[int]string {
	out := make(map[int]string)
	for _, d := range ds {
		for _, n := range d.at {
			out[n] = d.why
		}
	}
	return out
}
