//! A bound on the answers that the SDK collects in memory: listings, error documents, everything but the
//! body of a successful read. Also notes the session tokens of requests, which answers may echo.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use http_body_util::Limited;

/// Most bytes of an answer: a page of 1,000 percent-encoded keys of 1,024 bytes, with their markup.
const ANSWER_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct BoundedAnswers;

#[dyn_dispatch_hint]
impl Intercept for BoundedAnswers {
    fn name(&self) -> &'static str {
        "BoundedAnswers"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request().headers();
        if let Some(token) = headers.get("x-amz-security-token") {
            crate::secrets::note(token);
        }
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let operation = config.load::<Metadata>().map(Metadata::name);
        let answer = context.response_mut();
        if operation == Some("GetObject") && answer.status().is_success() {
            return Ok(());
        }
        let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
        *answer.body_mut() = SdkBody::from_body_1_x(Limited::new(body, ANSWER_BYTES_MAX));
        Ok(())
    }
}
