// Package service answers the webhooks of an unmodified kube-apiserver: TokenReview,
// SubjectAccessReview and AdmissionReview, over TLS to clients with a certificate.
//
// [New] is the handler over a [kubetenant.Stack]; it keeps nothing between two requests. [State] is
// what the stack knows of the cluster, [Serve] the listener with certificates that change and an
// end that loses no request.
package service
