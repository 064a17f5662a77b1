package openflow

// Samples lets the tests against a real switch use the samples.
var Samples = samples
