package desired

// Rate is how much a port's endpoint may send. No picture has one before issue 16,
// which compiles rates of net profiles and adds those for what the endpoint
// receives.
type Rate struct {
	Bits  uint64 // a second
	Burst uint64 // bytes beyond it at once
}
