// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

// response is a TokenReview whose status may be missing.
type response struct {
	metav1.TypeMeta `json:",inline"`
	Status          *authenticationv1.TokenReviewStatus `json:"status"`
}

// plain matches a version, kind or media type that an error may contain, unless it contains a part
// of the token.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+/-]{0,63}$`)

// validate returns an error of kind [ErrUnreadable] if the response is not a TokenReview with a
// status. err is the error from decoding the response. The result contains no part of the token.
func (r *response) validate(contentType, token string, err error) error {
	shown := func(text string) bool { return plain.MatchString(text) && !containsPart(text, token) }
	switch {
	case errors.Is(err, outbound.ErrMalformed):
		if media, _, invalid := mime.ParseMediaType(contentType); invalid == nil && shown(media) {
			return fmt.Errorf("%w: %w (Content-Type %s)", ErrUnreadable, err, media)
		}
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	case errors.Is(err, outbound.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	case err != nil: // the response was incomplete, or too many are being read
		return ErrUnavailable
	}
	group := authenticationv1.SchemeGroupVersion.String()
	for _, field := range []struct{ name, got, want string }{
		{"apiVersion", r.APIVersion, group}, {"kind", r.Kind, "TokenReview"},
	} {
		if field.got == field.want {
			continue
		}
		if shown(field.got) {
			return fmt.Errorf("%w: %s is %s, and must be %s", ErrUnreadable, field.name, field.got, field.want)
		}
		return fmt.Errorf("%w: %s is missing or invalid, and must be %s", ErrUnreadable, field.name, field.want)
	}
	if r.Status == nil {
		return fmt.Errorf("%w: status is missing", ErrUnreadable)
	}
	return nil
}

const (
	// reasonBytes limits the size of the service's reason in an error.
	reasonBytes = 200
	// partBytes is the minimum length of a part of a token that no reason may contain.
	partBytes = 8
)

// rejectedError returns an error of kind [ErrNotAuthenticated]. It includes the service's reason,
// unless the reason contains a part of the token.
func rejectedError(reason, token string) error {
	shown := strings.ToValidUTF8(reason[:min(len(reason), reasonBytes)], "")
	text := strings.Join(strings.FieldsFunc(shown, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	switch {
	case text == "":
		return ErrNotAuthenticated
	case containsPart(text, token):
		return fmt.Errorf("%w: the service's reason is not shown, because it contains a part of the token",
			ErrNotAuthenticated)
	case len(reason) > reasonBytes:
		text += "..."
	}
	return fmt.Errorf("%w: %s", ErrNotAuthenticated, text)
}

// containsPart reports whether a text contains a part of a token. The part may be URL-encoded, or
// have other characters between its characters.
func containsPart(text, token string) bool {
	letters := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, s)
	}
	texts := []string{letters(text)}
	if decoded, err := url.QueryUnescape(text); err == nil {
		texts = append(texts, letters(decoded))
	}
	secret := letters(token)
	part := min(partBytes, len(secret))
	for i := range len(secret) - part + 1 {
		if part > 0 && slices.ContainsFunc(texts, func(text string) bool {
			return strings.Contains(text, secret[i:i+part])
		}) {
			return true
		}
	}
	return false
}
